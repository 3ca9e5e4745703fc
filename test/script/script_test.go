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

	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/lab/labtest"
)

// patience bounds every "until".
const patience = 60 * time.Second

// player runs one script.
type player struct {
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
	bin := labtest.Binaries(t, "atoll", "atoll-hub", "atoll-lab")
	l, err := lab.Up(t.Context(), lab.Options{
		Dir: t.TempDir(), Members: 1, Regions: []string{"eu"}, Progress: t.Output(),
		Binaries: lab.Binaries{Lab: filepath.Join(bin, "atoll-lab"), Hub: filepath.Join(bin, "atoll-hub"), Atoll: filepath.Join(bin, "atoll")},
	})
	if l != nil {
		t.Cleanup(func() {
			if err := l.Down(context.Background()); err != nil {
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
			p := &player{bin: bin, lab: l, dir: t.TempDir(), kept: map[string]string{"MEMBER": l.Kubeconfig("member1")}}
			for _, f := range archive.Files {
				if err := os.WriteFile(filepath.Join(p.dir, f.Name), f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p.play(t, file, string(archive.Comment))
		})
	}
	for _, file := range []string{"../../docs/plan.md", "../../docs/interpret.md"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			(&player{bin: bin, lab: l, dir: t.TempDir()}).document(t, file)
		})
	}
}

func (p *player) play(t *testing.T, file, script string) {
	for i, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.line(t.Context(), os.Expand(line, func(name string) string { return p.kept[name] })); err != nil {
			t.Fatalf("%s:%d: %s\n%v\n--- stdout\n%s\n--- stderr\n%s", file, i+1, line, err, p.stdout, p.stderr)
		}
	}
}

// line does one line of a script.
func (p *player) line(ctx context.Context, line string) error {
	rest, negated := strings.CutPrefix(line, "! ")
	word, tail, _ := strings.Cut(rest, " ")
	switch word {
	case "stdout":
		return match("standard output", tail, p.stdout, !negated)
	case "stderr":
		return match("standard error", tail, p.stderr, !negated)
	case "same":
		return p.same(tail)
	case "exits":
		return p.exits(ctx, tail)
	case "keep":
		return p.keep(tail)
	case "until":
		return p.until(ctx, tail)
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

func match(what, pattern, text string, want bool) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return err
	}
	if re.MatchString(text) != want {
		return fmt.Errorf("%s: match of %q is %t, want %t", what, pattern, !want, want)
	}
	return nil
}

// same as a file, byte for byte.
func (p *player) same(name string) error {
	want, err := os.ReadFile(filepath.Join(p.dir, name))
	if err == nil && string(want) != p.stdout {
		err = fmt.Errorf("the last standard output is not %s", name)
	}
	return err
}

// exits with a code.
func (p *player) exits(ctx context.Context, tail string) error {
	code, command, _ := strings.Cut(tail, " ")
	if got := p.code(ctx, command); fmt.Sprint(got) != code {
		return fmt.Errorf("it exits with %d", got)
	}
	return nil
}

// code with which a command ends; -1 where it did not end by itself.
func (p *player) code(ctx context.Context, command string) int {
	var exit *exec.ExitError
	switch err := p.run(ctx, command); {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func (p *player) keep(tail string) error {
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

func (p *player) until(ctx context.Context, tail string) error {
	command, pattern, _ := strings.Cut(tail, " ~ ")
	command, fails := strings.CutPrefix(command, "! ")
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if last = p.run(ctx, command); fails && last == nil {
			last = errors.New("it was to fail")
		} else if (last != nil) == fails {
			last = match("standard output", pattern, p.stdout, true)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("not within %s: %w", patience, last)
	}
	return nil
}

func (p *player) run(ctx context.Context, line string) error {
	words, err := split(line)
	if err != nil {
		return err
	}
	var args []string
	switch name := words[0]; name {
	case "atoll":
		args = append([]string{"atoll", "--kubeconfig", p.lab.Kubeconfig("hub")}, words[1:]...)
	case "kubectl":
		args = append([]string{"atoll-lab", "kubectl", "--kubeconfig", p.lab.Kubeconfig("hub")}, words[1:]...)
	case "member":
		args = append([]string{"atoll-lab", "kubectl", "--kubeconfig", p.lab.Kubeconfig("member1")}, words[1:]...)
	case "lab":
		args = append([]string{"atoll-lab"}, append(words[1:], "--dir", p.lab.Dir())...)
	default:
		return fmt.Errorf("a script knows no command %q", name)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, args[0]), args[1:]...)
	cmd.Dir = p.dir
	// What the script's author has at home is no part of the story.
	cmd.Env = append(os.Environ(), "HOME="+p.dir, "KUBECONFIG=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	p.stdout, p.stderr = stdout.String(), stderr.String()
	return err
}

// split takes a line apart at blanks outside of single quotes.
func split(line string) ([]string, error) {
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
