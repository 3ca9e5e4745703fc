package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/labtest"
)

// scriptPlayer runs one script.
type scriptPlayer struct {
	bin            string
	lab            *lab.Lab
	dir            string
	kept           map[string]string
	stdout, stderr string
}

func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clusters")
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	bin := labtest.BuildBinaries(t, "atoll", "atoll-hub", "atoll-lab")
	l, err := lab.BringUp(t.Context(), lab.Options{
		Dir: t.TempDir(), EndsWithStarter: true, Members: 1, Regions: []string{"eu"}, Progress: t.Output(),
		Binaries: lab.Binaries{Lab: filepath.Join(bin, "atoll-lab"), Hub: filepath.Join(bin, "atoll-hub"), Atoll: filepath.Join(bin, "atoll")},
	})
	if l != nil {
		t.Cleanup(func() {
			if err := l.StopAll(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := &scriptPlayer{bin: bin, lab: l, dir: t.TempDir(), kept: map[string]string{
				"MEMBER": l.KubeconfigPath("member1"), "DATA": filepath.Join(l.Dir(), "hub"),
			}}
			for _, f := range archive.Files {
				if err := os.WriteFile(filepath.Join(p.dir, f.Name), f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p.playScript(t, file, string(archive.Comment))
		})
	}
	for _, file := range []string{"../../../docs/plan.md", "../../../docs/interpret.md"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			(&scriptPlayer{bin: bin, lab: l, dir: t.TempDir()}).playDocument(t, file)
		})
	}
}

func (p *scriptPlayer) playScript(t *testing.T, file, script string) {
	for i, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.runLine(t.Context(), os.Expand(line, func(name string) string { return p.kept[name] })); err != nil {
			t.Fatalf("%s:%d: %s\n%v\n--- stdout\n%s\n--- stderr\n%s", file, i+1, line, err, p.stdout, p.stderr)
		}
	}
}

// runLine does one line of a script.
func (p *scriptPlayer) runLine(ctx context.Context, runLine string) error {
	rest, negated := strings.CutPrefix(runLine, "! ")
	word, tail, _ := strings.Cut(rest, " ")
	switch word {
	case "stdout":
		return matchOutput("standard output", tail, p.stdout, !negated)
	case "stderr":
		return matchOutput("standard error", tail, p.stderr, !negated)
	case "same":
		return p.compareFile(tail)
	case "exits":
		return p.checkExit(ctx, tail)
	case "keep":
		return p.keepValue(tail)
	case "until":
		return p.repeatUntil(ctx, tail)
	}
	err := p.run(ctx, rest)
	if negated {
		if err == nil {
			return fmt.Errorf("it was to fail")
		}
		return nil
	}
	return err
}

func matchOutput(what, pattern, text string, want bool) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return err
	}
	if re.MatchString(text) != want {
		return fmt.Errorf("%s: match of %q is %t, want %t", what, pattern, !want, want)
	}
	return nil
}

// compareFile compares the output with a file, byte for byte.
func (p *scriptPlayer) compareFile(name string) error {
	want, err := os.ReadFile(filepath.Join(p.dir, name))
	if err == nil && string(want) != p.stdout {
		err = fmt.Errorf("the last standard output is not %s", name)
	}
	return err
}

// checkExit checks the exit code of a command.
func (p *scriptPlayer) checkExit(ctx context.Context, tail string) error {
	code, command, _ := strings.Cut(tail, " ")
	if got := p.exitCode(ctx, command); fmt.Sprint(got) != code {
		return fmt.Errorf("it exits with %d", got)
	}
	return nil
}

// exitCode returns the exit code of a command; -1 if it did not end by itself.
func (p *scriptPlayer) exitCode(ctx context.Context, command string) int {
	var exit *exec.ExitError
	switch err := p.run(ctx, command); {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func (p *scriptPlayer) keepValue(tail string) error {
	name, field, _ := strings.Cut(tail, " ")
	var object map[string]any
	if err := json.Unmarshal([]byte(p.stdout), &object); err != nil {
		return fmt.Errorf("the last output is no JSON object: %w", err)
	}
	value, ok := object[field]
	if !ok {
		return fmt.Errorf("the last output has no field %q", field)
	}
	p.kept[name] = fmt.Sprint(value)
	return nil
}

func (p *scriptPlayer) repeatUntil(ctx context.Context, tail string) error {
	command, pattern, _ := strings.Cut(tail, " ~ ")
	command, fails := strings.CutPrefix(command, "! ")
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, testwait.HangLimit, true, func(ctx context.Context) (bool, error) {
		err := p.run(ctx, command)
		if fails && err == nil {
			err = errors.New("it was to fail")
		} else if (err != nil) == fails {
			err = matchOutput("standard output", pattern, p.stdout, true)
		}
		if last == nil || ctx.Err() == nil { // the limit kills the command
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("not within %s; last seen: %w", testwait.HangLimit, last)
	}
	return nil
}

func (p *scriptPlayer) run(ctx context.Context, line string) error {
	words, err := splitLine(line)
	if err != nil {
		return err
	}
	var args []string
	switch name := words[0]; name {
	case "atoll":
		args = append([]string{"atoll", "--kubeconfig", p.lab.KubeconfigPath("hub")}, words[1:]...)
	case "kubectl":
		args = append([]string{"atoll-lab", "kubectl", "--kubeconfig", p.lab.KubeconfigPath("hub")}, words[1:]...)
	case "member":
		args = append([]string{"atoll-lab", "kubectl", "--kubeconfig", p.lab.KubeconfigPath("member1")}, words[1:]...)
	case "hub":
		args = append([]string{"atoll-hub"}, words[1:]...)
	case "lab":
		args = append([]string{"atoll-lab"}, append(words[1:], "--dir", p.lab.Dir())...)
	default:
		return fmt.Errorf("a script knows no command %q", name)
	}
	ctx, cancel := context.WithTimeout(ctx, testwait.HangLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, args[0]), args[1:]...)
	cmd.Dir = p.dir
	// The author's own configuration is no part of the script.
	cmd.Env = append(os.Environ(), "HOME="+p.dir, "KUBECONFIG=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	p.stdout, p.stderr = stdout.String(), stderr.String()
	return err
}

// splitLine takes a line apart at blanks outside of single quotes.
func splitLine(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, inside := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, inside = !quoted, true
		case r == ' ' && !quoted:
			if inside {
				words = append(words, word.String())
				word.Reset()
				inside = false
			}
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed: %s", line)
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}
