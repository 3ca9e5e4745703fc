// Package process runs the parts of a lab as detached processes and finds them again later,
// from any process.
//
// Contract:
//
//   - A Spec describes the command of a process and the places of its log and identity
//     file. Equal Specs mean the same process, also in different programs. Nothing is kept
//     in memory, so that one program can start a process that another one ends.
//   - A started process has a session of its own and outlives its starter, unless it has
//     EndsWithStarter.
//   - A process is identified by its id and its start time. A process id that passed to
//     another process is never signalled: signals use a handle that was opened before the
//     start time was compared.
//   - Every process carries Spec.Owner in its environment. KillOwnedProcesses finds processes by it
//     whose identity file was lost, for instance because the starter was killed.
//   - Functions may be called concurrently. The caller excludes two concurrent Starts of
//     one Spec.
//   - Linux only: it reads /proc.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// startMark begins the line that a start writes to the log.
const startMark = "---- "

// ownerVariable marks the processes of one lab in their environment.
const ownerVariable = "ATOLL_LAB_OWNER"

// State is the state of a process.
type State string

const (
	// Running means that the last started process is alive.
	Running State = "Running"
	// Stopped means that it ended, by itself or by a signal.
	Stopped State = "Stopped"
	// NeverStarted means that no start is on record.
	NeverStarted State = "NeverStarted"
)

// ProcessSpec describes one process.
type ProcessSpec struct {
	// Name is its name in messages.
	Name string
	// Owner is the lab's directory, absolute.
	Owner string
	// Command is the program's path and its arguments.
	Command []string
	// EndsWithStarter sends the process SIGTERM at any end of its starter.
	EndsWithStarter bool
	// Env is added to the starter's environment, as KEY=value.
	Env []string
	// Log receives stdout and stderr, appended over restarts.
	Log string
	// Identity is the file with the identity of the last started process.
	Identity string
}

// processIdentity distinguishes a process from a later one with the same id.
type processIdentity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since boot, as the kernel counts it.
	StartTime uint64 `json:"startTime"`
	// Boot is the id of the boot to which StartTime relates.
	Boot string `json:"boot"`
}

// Start starts the process and returns when it exists, before it is ready. It fails if the
// last started one still runs.
func (s ProcessSpec) Start() error {
	if state, id := s.readState(); state == Running {
		return fmt.Errorf("%s runs already as process %d; stop it first", s.Name, id.PID)
	}
	for _, file := range []string{s.Log, s.Identity} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("start %s: %w", s.Name, err)
		}
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer log.Close()
	// Arguments may hold a join token, so the log names the program only.
	fmt.Fprintf(log, "%s%s %s starts %s\n", startMark, time.Now().Format(time.RFC3339), s.Name, s.Command[0])

	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env = append(append(os.Environ(), s.Env...), ownerVariable+"="+s.Owner)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.EndsWithStarter {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	if err := startAndReap(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}

	id, err := readIdentity(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("start %s: it ended at once: %w\n%s", s.Name, err, s.LastLines())
	}
	data, err := json.Marshal(id)
	if err == nil {
		err = os.WriteFile(s.Identity+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(s.Identity+".tmp", s.Identity)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: store its process id: %w", s.Name, err), cmd.Process.Kill())
	}
	return nil
}

// startAndReap starts a command, and reaps it when it ends: only a parent can, and a killed process
// would stay visible until the starter ends. The log contains the reason of its end.
func startAndReap(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		// For the kernel, an EndsWithStarter child ends with the thread that started it.
		// This thread stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return <-started
}

// CurrentState returns the state of the process, and its id if it runs.
func (s ProcessSpec) CurrentState() (State, int) {
	state, id := s.readState()
	if state != Running {
		return state, 0
	}
	return state, id.PID
}

func (s ProcessSpec) readState() (State, processIdentity) {
	data, err := os.ReadFile(s.Identity)
	if errors.Is(err, fs.ErrNotExist) {
		return NeverStarted, processIdentity{}
	}
	var id processIdentity
	if err != nil || json.Unmarshal(data, &id) != nil {
		return Stopped, processIdentity{}
	}
	if !id.isAlive() {
		return Stopped, id
	}
	return Running, id
}

// CheckRunning returns an error with the name and the end of the log if the process does
// not run.
func (s ProcessSpec) CheckRunning() error {
	if state, _ := s.CurrentState(); state == Running {
		return nil
	}
	return fmt.Errorf("%s ended; its log %s ends with:\n%s", s.Name, s.Log, s.LastLines())
}

// KillProcess sends SIGKILL and returns when the process is gone. A process that does not
// run is no error.
func (s ProcessSpec) KillProcess(ctx context.Context) error {
	state, id := s.readState()
	if state != Running {
		return nil
	}
	return id.killAndWait(ctx, s.Name)
}

// Stop sends SIGTERM, and SIGKILL after grace. It returns when the process is gone; a
// process that does not run is no error.
func (s ProcessSpec) Stop(ctx context.Context, grace time.Duration) error {
	state, id := s.readState()
	if state != Running {
		return nil
	}
	if err := id.sendSignal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s (process %d): %w", s.Name, id.PID, err)
	}
	if id.waitGone(ctx, grace) == nil {
		return nil
	}
	return id.killAndWait(ctx, s.Name)
}

// WaitReady polls ready until it returns nil. It fails when the process ends or after the
// timeout. The error contains the cause, ready's last error and the end of the log.
func (s ProcessSpec) WaitReady(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	var complaint error
	ended := false
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		// The state is read first: a process that became ready and then ended must count
		// as ended.
		state, _ := s.CurrentState()
		if complaint = ready(ctx); complaint == nil && state == Running {
			return true, nil
		}
		ended = state != Running
		return ended, nil
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("gave up waiting for %s: %w", s.Name, context.Cause(ctx))
	case ended:
		return fmt.Errorf("%s ended before it was ready; its log %s ends with:\n%s", s.Name, s.Log, s.LastLines())
	case err != nil:
		return fmt.Errorf("%s runs but is not ready after %s (%w); its log %s ends with:\n%s", s.Name, timeout, complaint, s.Log, s.LastLines())
	}
	return nil
}

// LastLines returns the end of the log, indented, for error messages.
func (s ProcessSpec) LastLines() string {
	const lines, size = 15, 8 << 10
	file, err := os.Open(s.Log)
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	tail := make([]byte, min(size, info.Size()))
	if _, err := file.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(tail), "\n"), "\n")
	for i := len(all) - 1; i > 0; i-- {
		if strings.HasPrefix(all[i], startMark) {
			all = all[i:] // earlier lines belong to another process
			break
		}
	}
	all = all[max(0, len(all)-lines):]
	return "  " + strings.Join(all, "\n  ")
}
