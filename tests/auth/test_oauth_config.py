"""The keys of `type: oauth` (CFG-1, section 6)."""

from pathlib import Path

import pytest

from mcpx.auth.oauth import OAuth
from mcpx.config import load
from mcpx.model.errors import ConfigError


def auth_of(text: str, folder: Path) -> object:
    file = folder / "config.yaml"
    file.write_text(f"auth_configs: [{{name: a, {text}}}]\n", encoding="utf-8")
    file.chmod(0o600)
    return load(file, {}).auth_configs[0].auth


@pytest.mark.parametrize(
    ("text", "auth"),
    [
        ("type: oauth", OAuth()),
        ("type: oauth, oauth: {}", OAuth()),
        ("type: oauth, oauth: {scope: a b}", OAuth(scope="a b")),
        (
            "type: oauth, oauth: {client_id: x, client_secret: s}",
            OAuth(client_id="x", client_secret="s"),
        ),
        (
            "type: oauth, oauth: {issuer: 'https://login.example'}",
            OAuth(issuer="https://login.example"),
        ),
    ],
)
def test_every_key_may_be_left_out(text: str, auth: OAuth, tmp_path: Path) -> None:
    assert auth_of(text, tmp_path) == auth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type: oauth, oauth: {client_secret: s3cret}", "name its 'client_id'"),
        ('type: oauth, oauth: {client_id: "a\\nb"}', "line break"),
        ("type: oauth, oauth: {client_id: ''}", "must not be empty"),
        ("type: oauth, oauth: {issuer: nowhere}", "must begin with http"),
        ("type: oauth, oauth: {token_url: x}", "token_url"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        auth_of(text, tmp_path)
    assert message in str(told.value)
    assert "s3cret" not in str(told.value)
    assert "s3cret" not in repr(OAuth(client_id="x", client_secret="s3cret"))


def test_a_command_that_refers_to_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "auth_configs: [{name: a, type: oauth}]\n"
        "commands: [{name: c, type: http, http: {url: 'https://api.example', auth: {ref: a}}}]\n",
        encoding="utf-8",
    )
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="signs in to MCP servers only") as told:
        load(file, {})
    assert "config.yaml:2:" in str(told.value)
