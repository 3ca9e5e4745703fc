package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/corpus/compare"
)

// maxOutputBytes bounds the output of a program.
const maxOutputBytes = 4 << 20

// killDelay is the time that a program has to end after its context has.
const killDelay = 2 * time.Second

// boundedBuffer keeps the begin of what is written to it.
type boundedBuffer struct {
	kept      bytes.Buffer // not embedded: its ReadFrom has no bound
	truncated bool
}

// Write never fails: a program whose output is too long ends by itself.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	rest := maxOutputBytes - b.kept.Len()
	if len(p) > rest {
		b.truncated = true
		b.kept.Write(p[:rest])
		return len(p), nil
	}
	return b.kept.Write(p)
}

// newProgramCommand returns a command of the lab's programs that runs in dir.
func newProgramCommand(ctx context.Context, dir, name string, args ...string) (*exec.Cmd, error) {
	path, err := lab.ProgramPath(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.WaitDelay = dir, killDelay
	cmd.Env = append(os.Environ(), "KUBERC=off")
	return cmd, nil
}

// runKubectl runs kubectl in dir and returns its answer. An error means that there is no answer.
func runKubectl(ctx context.Context, dir string, args ...string) (compare.CommandAnswer, error) {
	cmd, err := newProgramCommand(ctx, dir, "atoll-lab", append([]string{"kubectl"}, args...)...)
	if err != nil {
		return compare.CommandAnswer{}, err
	}
	var out boundedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return compare.CommandAnswer{}, fmt.Errorf("kubectl %s: it did not end in time: %w", args[0], ctx.Err())
	case err != nil && !errors.As(err, &exit):
		return compare.CommandAnswer{}, fmt.Errorf("kubectl %s: %w", args[0], err)
	case out.truncated:
		return compare.CommandAnswer{}, fmt.Errorf("kubectl %s: it printed more than %d bytes", args[0], maxOutputBytes)
	}
	return compare.NewCommandAnswer(cmd.ProcessState.ExitCode(), out.kept.String()), nil
}

// renderManifest returns the stream of a manifest's objects.
func renderManifest(ctx context.Context, m manifest) ([]byte, error) {
	switch m.form {
	case formDirectory:
		return readManifestDir(m.path)
	case formKustomization:
		return programOutput(ctx, m.path, "atoll-lab", "kubectl", "kustomize", ".")
	case formChart:
		if path, err := lab.ProgramPath("helm"); err != nil {
			return nil, err
		} else if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s is a chart, and there is no helm to render it; build it with \"make helm\": %w", m.name, err)
		}
		return programOutput(ctx, m.path, "helm", "template", m.name, ".", "--include-crds")
	}
	return readManifestFile(m.path)
}

// programOutput returns what a program prints to its standard output.
func programOutput(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd, err := newProgramCommand(ctx, dir, program, args...)
	if err != nil {
		return nil, err
	}
	var out, problem boundedBuffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(problem.kept.String()))
	}
	if out.truncated || out.kept.Len() > maxManifestBytes {
		return nil, fmt.Errorf("%s %s: it printed more than %d bytes", program, strings.Join(args, " "), maxManifestBytes)
	}
	return out.kept.Bytes(), nil
}
