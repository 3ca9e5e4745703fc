// Package childprocess runs hostile work in child processes of the hub's own binary.
//
// Contract: Run returns within its context and the timeout of the program, and leaves no process behind. A child gets
// the environment that its caller states, and nothing else of the hub's. Its answer has a bound. Limit bounds the
// process that calls it for good. Confine takes files, network and programs away from it. Functions are safe for
// concurrent use.
package childprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// The errors of a child that had to be ended.
var (
	ErrTimedOut = errors.New("the process did not answer in time")
	ErrTooLong  = errors.New("the answer of the process is too long")
)

// Program is a child to run.
type Program struct {
	// Executable with its arguments.
	Executable []string
	Env        []string
	// Dir is its working directory.
	Dir     string
	Timeout time.Duration
	// MaxAnswer is the most bytes of its standard output.
	MaxAnswer int
}

// Run runs a program and returns what it writes. The error of a child that ended by itself is an *exec.ExitError.
func Run(ctx context.Context, p Program, in []byte) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, p.Executable[0], p.Executable[1:]...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	cmd.Stdin = bytes.NewReader(in)
	out := &boundedBuffer{most: p.MaxAnswer}
	cmd.Stdout = out
	cmd.WaitDelay = p.Timeout / 24
	isolateChild(cmd)
	// The child ends with the thread that starts it, so the thread stays until the child has ended.
	runtime.LockOSThread()
	err := cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, ErrTimedOut
	case out.full:
		return nil, ErrTooLong
	}
	return out.Bytes(), err
}

// FindOwn returns this program with the arguments of a child.
func FindOwn(arguments ...string) ([]string, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the hub's own program: %w", err)
	}
	return append([]string{own}, arguments...), nil
}

// Environment returns the variables that bound the memory of a child softly, and keep it to one processor.
func Environment(memory int64) []string {
	return []string{fmt.Sprintf("GOMEMLIMIT=%d", memory), "GOMAXPROCS=1", "GOTRACEBACK=none", "HOME=/nonexistent", "TZ=UTC"}
}

// Limits of a process. A field without a value sets no limit.
type Limits struct {
	// DataBytes is the most memory, and FileBytes the largest file that it may write.
	DataBytes, FileBytes uint64
	OpenFiles            uint64
}

// boundedBuffer keeps no more than an answer may have.
type boundedBuffer struct {
	bytes.Buffer
	most int
	full bool
}

// Write fails once the buffer is full, which ends the child by a broken pipe.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		b.full = true
		return 0, io.ErrShortBuffer
	}
	return b.Buffer.Write(p)
}

// ReadFrom is not that of the buffer, which has no bound.
func (b *boundedBuffer) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}

// ReadRequest reads all of a request, which may have a number of bytes.
func ReadRequest(in io.Reader, most int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("read the request of a child: %w", err)
	}
	if int64(len(raw)) > most {
		return nil, errors.New("the request of a child is too long")
	}
	return raw, nil
}
