"""Lines of a large text without making a list of them (SUR-11).

Promise: both is a scan at the speed of `str.find`; no part of the text is copied, except that it is
encoded once where bytes are asked for. A line break at the very end of a text ends its last line;
it does not begin another one.
"""


def count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def has_line_over(text: str, most: int) -> bool:
    """Whether a line has more than `most` bytes, `most` above 0."""
    data = text.encode("utf-8", "surrogatepass")
    begin = 0  # of a line; from there to the last break within reach all lines are short enough
    while len(data) - begin > most:
        last = data.rfind(b"\n", begin, begin + most + 1)
        if last < 0:
            return True
        begin = last + 1
    return False


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
