// Package renderchild runs the renderer of charts and kustomizations in a process of its own.
//
// Contract: the process has the files of its Job and nothing else: no network, no other file, no program, no
// credential. It has bounds of time, memory and bytes. Its end, whatever the cause, is a Failure of this Job.
// Content that exceeds a bound has ContentTooLarge, and what another try may mend has BuildFailed. Run is safe
// for concurrent use.
package renderchild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/childprocess"
	"atoll.dev/atoll/internal/sources/render"
)

// ChildCommand is the hidden subcommand of the hub's binary that renders a Job.
const ChildCommand = "render-source"

// Bounds of one Job.
const (
	// timeout is the most time on a busy machine.
	timeout = time.Minute
	// memory is the soft limit of the process, and maxData the hard one.
	memory  = 192 << 20
	maxData = 512 << 20
	// MaxRequestBytes is the most of a Job in JSON, and maxAnswerBytes that of its Result.
	MaxRequestBytes = 2 * render.MaxJobBytes
	maxAnswerBytes  = 16 << 20
)

// Runner starts processes.
type Runner struct {
	// Executable with its arguments; default: this program with ChildCommand.
	Executable []string
}

// Run renders a Job. The error is that of ctx, or a *render.Failure.
func (r Runner) Run(ctx context.Context, j render.Job) (render.Result, error) {
	in, err := json.Marshal(j)
	if err != nil {
		return render.Result{}, fmt.Errorf("encode the request of a build: %w", err)
	}
	if len(in) > MaxRequestBytes {
		return render.Result{}, render.NewFailure(atoll.ReasonContentTooLarge, "the files of the build have more than %d bytes", MaxRequestBytes)
	}
	program := r.Executable
	if len(program) == 0 {
		if program, err = childprocess.FindOwn(ChildCommand); err != nil {
			return render.Result{}, render.NewFailure(atoll.ReasonBuildFailed, "%v", err)
		}
	}
	out, err := childprocess.Run(ctx, childprocess.Program{Executable: program, Env: childprocess.Environment(memory), Dir: "/", Timeout: timeout, MaxAnswer: maxAnswerBytes}, in)
	if err != nil {
		return render.Result{}, failureOf(ctx, err)
	}
	var result render.Result
	if err := json.Unmarshal(out, &result); err != nil {
		return render.Result{}, render.NewFailure(atoll.ReasonBuildFailed, "the process that renders ended without an answer")
	}
	return result, nil
}

// failureOf returns why a process gave no answer.
func failureOf(ctx context.Context, err error) error {
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, childprocess.ErrTimedOut):
		return render.NewFailure(atoll.ReasonBuildFailed, "the content could not be rendered within %s", timeout)
	case errors.Is(err, childprocess.ErrTooLong):
		return render.NewFailure(atoll.ReasonContentTooLarge, "the content renders to more than %d bytes", maxAnswerBytes)
	case !errors.As(err, &ended):
		return render.NewFailure(atoll.ReasonBuildFailed, "start the process that renders: %v", err)
	case ended.ExitCode() == exitOfRuntime:
		return render.NewFailure(atoll.ReasonContentTooLarge, "the content needs more memory than the %d bytes that a rendering has, or its templates call each other without end", maxData)
	}
	return render.NewFailure(atoll.ReasonBuildFailed, "the process that renders ended (%s)", ended.ProcessState)
}

// Limits are those of the process.
var Limits = childprocess.Limits{DataBytes: maxData, FileBytes: 1, OpenFiles: 64}

// exitOfRuntime is the exit code of Go's runtime without memory or stack.
const exitOfRuntime = 2
