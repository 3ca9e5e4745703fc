package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// playDocument plays what a page of docs shows. A fenced block whose first line is "# FILE",
// for a name that ends in .yaml, is that file. In a block of the language console a line
// that begins with "$ " is a command, a pipe to jq left out, and what follows stands in
// what it prints, line by line and in that order; a line "..." stands for anything. "$ echo
// $?" is followed by the exit code of the command before.
func (p *scriptPlayer) playDocument(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for i, block := range strings.Split(string(text), "\n```") {
		if i%2 == 0 {
			continue
		}
		language, body, _ := strings.Cut(block, "\n")
		first, _, _ := strings.Cut(body, "\n")
		if name, ok := strings.CutPrefix(first, "# "); ok && strings.HasSuffix(name, ".yaml") && !strings.Contains(name, " ") {
			if err := os.WriteFile(filepath.Join(p.dir, name), []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if language == "console" {
			commands += p.playConsole(t, body)
		}
	}
	if commands == 0 {
		t.Errorf("%s shows no command", file)
	}
}

// playConsole plays a block, and counts its commands.
func (p *scriptPlayer) playConsole(t *testing.T, body string) (commands int) {
	code := "0"
	rest := ""
	for line := range strings.Lines(body + "\n") {
		line = strings.TrimRight(line, "\n")
		switch command, is := strings.CutPrefix(line, "$ "); {
		case is && command == "echo $?":
			rest = code + "\n"
		case is:
			commands++
			command, _, _ = strings.Cut(command, " | jq")
			code = fmt.Sprint(p.exitCode(t.Context(), command))
			rest = p.stdout + p.stderr
		case line == "" || line == "...":
		default:
			_, after, found := strings.Cut(rest, line+"\n")
			if !found {
				t.Errorf("it shows\n%s\nand there follows\n%s", line, rest)
				continue
			}
			rest = after
		}
	}
	return commands
}
