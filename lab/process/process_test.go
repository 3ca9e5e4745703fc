package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes this test binary play a process instead of testing.
const roleVariable = "ATOLL_PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "obedient":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		announceReady()
		<-ctx.Done()
	case "stubborn":
		ignored := make(chan os.Signal, 1)
		signal.Notify(ignored, syscall.SIGTERM)
		announceReady()
		for range ignored {
		}
	case "starter":
		s := ProcessSpec{
			Name: "child", Owner: os.Getenv("ATOLL_PROCESS_TEST_FILE"), Command: []string{os.Args[0]}, EndsWithStarter: true,
			Env: []string{roleVariable + "=obedient", "ATOLL_PROCESS_TEST_FILE=" + os.Getenv("ATOLL_PROCESS_TEST_FILE") + ".child"},
			Log: os.Getenv("ATOLL_PROCESS_TEST_FILE") + ".log", Identity: os.Getenv("ATOLL_PROCESS_TEST_FILE") + ".json",
		}
		if err := s.Start(); err != nil {
			panic(err)
		}
		announceReady()
		select {}
	case "failing":
		fmt.Println("cannot open the pod bay doors")
		os.Exit(3)
	}
}

// announceReady shows the test that signals are handled now.
func announceReady() {
	if err := os.WriteFile(os.Getenv("ATOLL_PROCESS_TEST_FILE"), nil, 0o600); err != nil {
		panic(err)
	}
}

// newSpec describes a process of that role; it is killed after the test.
func newSpec(t *testing.T, role string) ProcessSpec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := ProcessSpec{
		Name:     role,
		Owner:    dir,
		Command:  []string{self},
		Env:      []string{roleVariable + "=" + role, "ATOLL_PROCESS_TEST_FILE=" + filepath.Join(dir, "announced")},
		Log:      filepath.Join(dir, "logs", "p.log"),
		Identity: filepath.Join(dir, "run", "p.json"),
	}
	t.Cleanup(func() {
		if _, err := KillOwnedProcesses(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return s
}

func start(t *testing.T, s ProcessSpec) int {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	err := s.WaitReady(t.Context(), time.Minute, func(context.Context) error {
		_, err := os.Stat(filepath.Join(s.Owner, "announced"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, pid := s.CurrentState()
	return pid
}

func wantState(t *testing.T, s ProcessSpec, want State) {
	t.Helper()
	if got, _ := s.CurrentState(); got != want {
		t.Fatalf("state %s; want %s", got, want)
	}
}

func TestStartKillStart(t *testing.T) {
	s := newSpec(t, "obedient")
	wantState(t, s, NeverStarted)
	first := start(t, s)
	wantState(t, s, Running)
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Fatalf("second start: %v", err)
	}
	session, err := exec.Command("ps", "-o", "sid=", "-p", fmt.Sprint(first)).Output()
	if err == nil && strings.TrimSpace(string(session)) != fmt.Sprint(first) {
		t.Errorf("process %d is in session %s; want one of its own", first, session)
	}

	if err := s.KillProcess(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantState(t, s, Stopped)
	if err := s.KillProcess(t.Context()); err != nil {
		t.Fatalf("kill of one that is gone: %v", err)
	}
	if second := start(t, s); second == first {
		t.Fatalf("process id %d twice in a row", second)
	}
	wantState(t, s, Running)
}

func TestStopSendsSIGTERMFirst(t *testing.T) {
	s := newSpec(t, "obedient")
	start(t, s)
	begin := time.Now()
	if err := s.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("an obedient process took %s to stop", took)
	}
	wantState(t, s, Stopped)
}

func TestStopKillsTheStubborn(t *testing.T) {
	s := newSpec(t, "stubborn")
	start(t, s)
	if err := s.Stop(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	wantState(t, s, Stopped)
}

// A process id that passed to another process must never be signalled.
func TestReusedProcessIDIsSpared(t *testing.T) {
	innocent := newSpec(t, "obedient")
	pid := start(t, innocent)
	id, err := readIdentity(pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, changed := range map[string]processIdentity{
		"started earlier": {PID: id.PID, StartTime: id.StartTime - 1, Boot: id.Boot},
		"before a reboot": {PID: id.PID, StartTime: id.StartTime, Boot: "another"},
	} {
		s := newSpec(t, "obedient")
		data, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(s.Identity), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.Identity, data, 0o600); err != nil {
			t.Fatal(err)
		}
		wantState(t, s, Stopped)
		if err := errors.Join(s.KillProcess(t.Context()), s.Stop(t.Context(), time.Second), changed.sendSignal(syscall.SIGKILL)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantState(t, innocent, Running)
	}
}

func TestWaitReadyShowsTheLogOfOneThatEnds(t *testing.T) {
	s := newSpec(t, "failing")
	// The process may be gone before Start could look at it.
	err := s.Start()
	if err == nil {
		err = s.WaitReady(t.Context(), time.Minute, func(context.Context) error { return errors.New("not yet") })
	}
	if err == nil || !strings.Contains(err.Error(), "pod bay doors") {
		t.Fatalf("error %v; want the end of the log", err)
	}
	if strings.Contains(err.Error(), "not yet") {
		t.Fatalf("error %v speaks of readiness, but the process ended", err)
	}
}

func TestWaitReadyNamesTheMissingPart(t *testing.T) {
	s := newSpec(t, "obedient")
	start(t, s)
	err := s.WaitReady(t.Context(), 100*time.Millisecond, func(context.Context) error { return errors.New("no coffee") })
	if err == nil || !strings.Contains(err.Error(), "no coffee") || !strings.Contains(err.Error(), s.Log) {
		t.Fatalf("error %v; want the complaint and the log's name", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitReady(ctx, time.Minute, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v after cancellation", err)
	}
}

func TestKillOwnedFindsTheForgotten(t *testing.T) {
	forgotten, other := newSpec(t, "obedient"), newSpec(t, "obedient")
	pid := start(t, forgotten)
	start(t, other)
	if err := os.Remove(forgotten.Identity); err != nil {
		t.Fatal(err)
	}
	killed, err := KillOwnedProcesses(t.Context(), forgotten.Owner)
	if err != nil || !slices.Equal(killed, []int{pid}) {
		t.Fatalf("killed %v, %v; want %d", killed, err, pid)
	}
	if _, err := readIdentity(pid); err == nil {
		t.Fatal("the forgotten process lives")
	}
	wantState(t, other, Running)
}

// TestABoundProcessEndsWithItsStarter: also where that is killed, and though it has a
// session of its own.
func TestABoundProcessEndsWithItsStarter(t *testing.T) {
	starter := newSpec(t, "starter")
	start(t, starter)
	announced := filepath.Join(starter.Owner, "announced")
	child := ProcessSpec{Name: "child", Owner: announced, Log: announced + ".log", Identity: announced + ".json"}
	t.Cleanup(func() {
		if _, err := KillOwnedProcesses(context.WithoutCancel(t.Context()), announced); err != nil {
			t.Error(err)
		}
	})
	err := child.WaitReady(t.Context(), time.Minute, func(context.Context) error {
		_, err := os.Stat(announced + ".child")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.KillProcess(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, id := child.readState()
	if err := id.waitGone(t.Context(), time.Minute); err != nil {
		t.Errorf("the child outlives its starter: %v", err)
	}
}
