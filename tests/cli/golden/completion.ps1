# mcpx: completion for PowerShell
Register-ArgumentCompleter -Native -CommandName mcpx -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $line = $commandAst.ToString()
    if ($cursorPosition -gt $line.Length) { $line = $line.PadRight($cursorPosition) }
    $before = $env:MCPX_COMPLETE_LINE
    $env:MCPX_COMPLETE_LINE = $line
    try {
        mcpx __complete powershell 2>$null |
            Where-Object { -not $_.StartsWith("`t") } |
            ForEach-Object {
            $value, $about = $_ -split "`t", 2
            $text = $value
            if ($value -match "[\s'`"``$;&|(){}]") { $text = "'" + $value.Replace("'", "''") + "'" }
            $tip = if ($about) { $about } else { $value }
            $result = [System.Management.Automation.CompletionResult]
            $result::new($text, $value, 'ParameterValue', $tip)
        }
    } finally {
        $env:MCPX_COMPLETE_LINE = $before
    }
}
