package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// replayingNode returns a node in the middle of a replay: its log was handed out, was applied, and is dropped
// from memory, and the node does not know that yet.
func replayingNode(t *testing.T, logger *zap.Logger) (*raft.RawNode, *raft.MemoryStorage, raft.Ready) {
	t.Helper()
	const last, dropped = 318, 218
	change := raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: 1}
	data, err := change.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	entries := []raftpb.Entry{{Type: raftpb.EntryConfChange, Term: 1, Index: 1, Data: data}}
	for i := uint64(2); i <= last; i++ {
		entries = append(entries, raftpb.Entry{Term: 1, Index: i, Data: []byte("write")})
	}
	storage := raft.NewMemoryStorage()
	if err := errors.Join(storage.Append(entries), storage.SetHardState(raftpb.HardState{Term: 1, Commit: last})); err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 5, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 1,
		CheckQuorum: true, PreVote: true, Logger: etcdserver.NewRaftLoggerZap(logger),
	})
	if err != nil {
		t.Fatal(err)
	}
	ready := node.Ready()
	if len(ready.CommittedEntries) != last {
		t.Fatalf("the node hands out %d entries, want %d", len(ready.CommittedEntries), last)
	}
	members := node.ApplyConfChange(change)
	if _, err := storage.CreateSnapshot(last, members, nil); err != nil {
		t.Fatal(err)
	}
	if err := storage.Compact(dropped); err != nil {
		t.Fatal(err)
	}
	return node, storage, ready
}

// startElection lets the node stand for election, and returns what it panics with, or nil.
func startElection(t *testing.T, node *raft.RawNode) (panicked any) {
	t.Helper()
	defer func() { panicked = recover() }()
	if err := node.Campaign(); err != nil {
		t.Fatal(err)
	}
	return nil
}

func TestElectionDuringReplayPanicsWithoutTheHook(t *testing.T) {
	node, _, _ := replayingNode(t, zap.NewNop())
	message, ok := startElection(t, node).(string)
	if !ok || !isReplayPanic(message) {
		t.Fatalf("raft panics with %q: when it no longer does, remove panicHook", message)
	}
}

func TestElectionDuringReplayMakesALeader(t *testing.T) {
	var out strings.Builder
	logger := newEtcdLogger(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
	node, storage, ready := replayingNode(t, logger)
	if panicked := startElection(t, node); panicked != nil {
		t.Fatalf("the start panics: %v", panicked)
	}
	if out.Len() > 0 {
		t.Errorf("what is no trouble is logged: %s", out.String())
	}
	node.Advance(ready)
	proposed, committed := false, ""
	for node.HasReady() || !proposed {
		if !node.HasReady() {
			if node.Status().RaftState != raft.StateLeader {
				t.Fatalf("the node is a %v", node.Status().RaftState)
			}
			if err := node.Propose([]byte("after the replay")); err != nil {
				t.Fatal(err)
			}
			proposed = true
		}
		ready := node.Ready()
		if !raft.IsEmptyHardState(ready.HardState) {
			if err := storage.SetHardState(ready.HardState); err != nil {
				t.Fatal(err)
			}
		}
		if err := storage.Append(ready.Entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range ready.CommittedEntries {
			if e.Index <= 318 {
				t.Errorf("entry %d is handed out twice", e.Index)
			}
			committed = string(e.Data)
		}
		node.Advance(ready)
	}
	if committed != "after the replay" {
		t.Errorf("the last entry that is committed is %q", committed)
	}
}

func TestOtherPanicsOfEtcdStay(t *testing.T) {
	for _, message := range []string{
		"tocommit(107) is out of range",
		"error scanning unapplied entries [1, 319): " + raft.ErrUnavailable.Error(),
	} {
		t.Run(message, func(t *testing.T) {
			defer func() {
				if got := recover(); got != message {
					t.Errorf("recovered %v", got)
				}
			}()
			newEtcdLogger(t.Context(), slog.New(slog.DiscardHandler)).Panic(message)
		})
	}
}

// Environment of the child that TestEveryAcknowledgedWriteSurvivesStopsAndKills starts.
const (
	childDir  = "ATOLL_TEST_ETCD_DIR"
	childRead = "ATOLL_TEST_ETCD_READ"
	childSnap = "ATOLL_TEST_ETCD_SNAPSHOTS"
)

// roundsVariable is the number of rounds of TestEveryAcknowledgedWriteSurvivesStopsAndKills; make test-all sets it.
const roundsVariable = "ATOLL_TEST_ETCD_ROUNDS"

// readNumber returns the number in a variable of the environment, or byDefault.
func readNumber(t *testing.T, variable string, byDefault uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestMain runs the child of TestEveryAcknowledgedWriteSurvivesStopsAndKills, or the tests.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writeUntilStopped(dir, os.Getenv(childRead), os.Getenv(childSnap)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeUntilStopped starts an etcd that takes a snapshot after that many writes, checks that it has the keys
// 1 to want, prints "ready", and writes the keys that follow, each printed once it is acknowledged, until SIGTERM.
func writeUntilStopped(dir, want, snapshots string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := strconv.Atoi(want)
	if err != nil {
		return err
	}
	count, err := strconv.ParseUint(snapshots, 10, 64)
	if err != nil {
		return err
	}
	s, err := Start(ctx, Options{Dir: dir, Logger: slog.New(slog.DiscardHandler), snapshotCount: count})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Stop()
	client, err := s.NewClient(context.Background())
	if err != nil {
		return err
	}
	defer client.Close()
	go func() { // a watch, as an API server holds
		for range client.Watch(context.Background(), "") {
		}
	}()
	for i := 1; i <= n; i++ {
		got, err := client.Get(context.Background(), strconv.Itoa(i))
		if err != nil {
			return err
		}
		if len(got.Kvs) != 1 {
			return fmt.Errorf("key %d of %d acknowledged keys is lost", i, n)
		}
	}
	fmt.Println("ready")
	for ctx.Err() == nil {
		n++
		if _, err := client.Put(ctx, strconv.Itoa(n), strings.Repeat("x", 2000)); err != nil {
			break
		}
		fmt.Println(n)
	}
	return nil
}

func TestEveryAcknowledgedWriteSurvivesStopsAndKills(t *testing.T) {
	rounds, seed := readNumber(t, roundsVariable, 10), readNumber(t, "SEED", uint64(time.Now().UnixNano()))
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir, acknowledged := t.TempDir(), 0
	for round := range rounds {
		how := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[random.IntN(2)]
		// The moment is a number of writes, or the start itself.
		writes := random.IntN(60)
		if random.IntN(4) == 0 {
			writes = -1
		}
		// Etcd drops entries during a replay where more than 100 lie behind the last snapshot.
		snapshots := []string{"40", "400", "2000"}[random.IntN(3)]
		got, err := runChild(t, []string{childDir + "=" + dir, childRead + "=" + strconv.Itoa(acknowledged), childSnap + "=" + snapshots}, writes, how)
		if err != nil {
			t.Fatalf("round %d, after %d writes, %v at write %d: %v", round, acknowledged, how, writes, err)
		}
		acknowledged = max(acknowledged, got)
	}
	t.Logf("%d writes in %d rounds", acknowledged, rounds)
}

// runChild runs the child until it has acknowledged that many writes, or for a moment where writes is -1,
// ends it by the signal, and returns its last acknowledged key.
func runChild(t *testing.T, env []string, writes int, how syscall.Signal) (last int, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	ready := writes < 0 || lines.Scan() && lines.Text() == "ready"
	for n := 0; ready && n < writes && lines.Scan(); n++ {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			return 0, err
		}
	}
	if err := cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	for lines.Scan() { // what it acknowledged before the signal reached it
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			last = n
		}
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == how:
		err = nil
	case err == nil && !ready:
		err = errors.New("it ended by itself")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, failure.String())
	}
	return last, nil
}
