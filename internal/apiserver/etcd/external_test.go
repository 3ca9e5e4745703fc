package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fakeMember is one member of an external etcd, with sizes in percent of a quota of 100 bytes.
type fakeMember struct {
	id         uint64
	file, used int64
	// uncounted of the used bytes are free, which only a defragmentation finds out.
	uncounted int64
	isDown    bool
}

// fakeCluster is an external etcd that records what is asked of it.
type fakeCluster struct {
	// mu hands the fields over: from the test when it waits, to the observation that follows.
	mu      sync.Mutex
	members map[string]*fakeMember
	quota   int64
	// alarm is the ID of the member that has raised its alarm, 0 for none.
	alarm uint64
	// revision is the newest one, and compacted the one up to which there is no history.
	revision, compacted int64
	// afterDefragment is called with the endpoint, where it is set.
	afterDefragment func(endpoint string)
	calls           []string
}

// newFakeCluster returns an etcd with the members 1 at the endpoint a and 2 at b.
func newFakeCluster(a, b fakeMember) *fakeCluster {
	a.id, b.id = 1, 2
	return &fakeCluster{members: map[string]*fakeMember{"a": &a, "b": &b}, quota: 100, revision: 7}
}

// record appends the call, and its lack of a deadline.
func (f *fakeCluster) record(ctx context.Context, call string) {
	if _, bounded := ctx.Deadline(); !bounded {
		call += " without a deadline"
	}
	f.calls = append(f.calls, call)
}

func (f *fakeCluster) Status(_ context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[endpoint]
	if m.isDown {
		return nil, errors.New("down")
	}
	status := &clientv3.StatusResponse{Header: &pb.ResponseHeader{MemberId: m.id, Revision: f.revision}, DbSize: m.file, DbSizeInUse: m.used, DbSizeQuota: f.quota}
	if f.alarm > 0 {
		status.Errors = []string{(&pb.AlarmMember{MemberID: f.alarm, Alarm: pb.AlarmType_NOSPACE}).String()}
	}
	return status, nil
}

// handOver lets the next observation see what the test has changed.
func (f *fakeCluster) handOver() {
	f.mu.Lock()
	defer f.mu.Unlock()
}

func (f *fakeCluster) AlarmList(ctx context.Context) (*clientv3.AlarmResponse, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		f.record(ctx, "list")
	}
	return &clientv3.AlarmResponse{Alarms: []*pb.AlarmMember{{MemberID: 2, Alarm: pb.AlarmType_CORRUPT}, {MemberID: f.alarm, Alarm: pb.AlarmType_NOSPACE}}}, nil
}

func (f *fakeCluster) AlarmDisarm(ctx context.Context, m *clientv3.AlarmMember) (*clientv3.AlarmResponse, error) {
	f.record(ctx, fmt.Sprint("disarm ", m.Alarm, " of ", m.MemberID))
	f.alarm = 0
	return nil, nil
}

func (f *fakeCluster) Defragment(ctx context.Context, endpoint string) (*clientv3.DefragmentResponse, error) {
	f.record(ctx, "defragment "+endpoint)
	m := f.members[endpoint]
	m.used, m.uncounted = m.used-m.uncounted, 0
	m.file = m.used
	if f.afterDefragment != nil {
		f.afterDefragment(endpoint)
	}
	return nil, nil
}

func (f *fakeCluster) Compact(ctx context.Context, revision int64, _ ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	f.record(ctx, "compact")
	if revision <= f.compacted {
		return nil, rpctypes.ErrCompacted
	}
	f.compacted = revision
	return nil, nil
}

// requireCalls compares the calls since the last time.
func (f *fakeCluster) requireCalls(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls %q, want %q", f.calls, want)
	}
	f.calls = nil
}

// runExternal observes the cluster while test runs. wait lets the next observation pass.
func runExternal(t *testing.T, f *fakeCluster, test func(x *ExternalEtcd, wait func())) {
	runLoggedExternal(t, f, slog.DiscardHandler, test)
}

func runLoggedExternal(t *testing.T, f *fakeCluster, handler slog.Handler, test func(x *ExternalEtcd, wait func())) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		x, done := NewExternal(f, []string{"a", "b"}, slog.New(handler)), make(chan struct{})
		x.startDelay = cleanEvery
		go func() {
			defer close(done)
			x.Run(ctx)
		}()
		synctest.Wait()
		test(x, func() {
			f.handOver()
			time.Sleep(cleanEvery)
			synctest.Wait()
		})
		cancel()
		<-done
	})
}

// The member with the least room counts. The reserve begins at 90 and ends below 85 percent in use.
func TestAnExternalReserve(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 20, used: 10}, fakeMember{file: 100, used: 89})
	runExternal(t, f, func(x *ExternalEtcd, wait func()) {
		var states []StoreSpaceState
		x.OnSpaceChange(func(s StoreSpace) { states = append(states, s.State) })
		begin := time.Now()
		for _, c := range []struct {
			used int64
			want StoreSpaceState
		}{{90, SpaceReserve}, {85, SpaceReserve}, {84, SpaceFree}, {89, SpaceFree}} {
			f.members["b"].used = c.used
			if wait(); x.Space().State != c.want {
				t.Errorf("with %d in use: %v, want %v", c.used, x.Space().State, c.want)
			}
		}
		if want := []StoreSpaceState{SpaceFree, SpaceReserve, SpaceFree}; !slices.Equal(states, want) {
			t.Errorf("reported %v, want %v", states, want)
		}
		if s := x.Space(); !s.IsExternal || s.QuotaBytes != 100 || s.FileBytes != 100 || !s.Since.Equal(begin.Add(3*cleanEvery)) {
			t.Errorf("%+v", s)
		}
		// The history is compacted in the reserve, and nothing else is touched.
		f.requireCalls(t, "compact", "compact")
	})
}

// A full etcd is compacted and, once there are unused pages, defragmented and freed of its alarm.
func TestAFullExternalEtcdIsFreed(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 100, used: 97}, fakeMember{file: 96, used: 95})
	f.alarm = 1
	runExternal(t, f, func(x *ExternalEtcd, wait func()) {
		if x.Space().State != SpaceFull {
			t.Errorf("%v with an alarm", x.Space().State)
		}
		f.requireCalls(t, "compact")
		f.members["a"].used, f.members["b"].used = 60, 61 // people have deleted
		wait()
		f.requireCalls(t, "compact", "defragment a", "defragment b", "disarm NOSPACE of 1")
		if wait(); x.Space().State != SpaceFree {
			t.Errorf("%v after the alarm", x.Space().State)
		}
		f.requireCalls(t)
	})
}

// A hub that starts on a full etcd does not defragment at once, as other hubs may start with it. A
// member whose file leaves room is not defragmented at all.
func TestAHubStartsOnAFullExternalEtcd(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 100, used: 60}, fakeMember{file: 95, used: 60})
	f.alarm = 1
	runExternal(t, f, func(_ *ExternalEtcd, wait func()) {
		f.requireCalls(t, "compact")
		wait()
		f.requireCalls(t, "compact", "defragment a", "disarm NOSPACE of 1")
	})
}

// Hubs that start together observe at moments of their own.
func TestExternalStartDelaysDiffer(t *testing.T) {
	delays := map[time.Duration]bool{}
	for range 10 {
		d := NewExternal(nil, nil, nil).startDelay
		if d < 0 || d >= cleanEvery {
			t.Errorf("a delay of %v", d)
		}
		delays[d] = true
	}
	if len(delays) < 2 {
		t.Errorf("10 hubs have the delays %v", delays)
	}
}

// A full etcd does not count the pages that a compaction has freed. A defragmentation finds them 30
// seconds later, once for each compaction that dropped history.
func TestUncountedPagesOfAFullExternalEtcd(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 100, used: 98, uncounted: 1}, fakeMember{file: 50, used: 50})
	f.alarm = 1
	runExternal(t, f, func(_ *ExternalEtcd, wait func()) {
		f.requireCalls(t, "compact")
		wait()
		wait()
		f.requireCalls(t, "compact", "compact")
		wait()
		f.requireCalls(t, "compact", "defragment a")
		for range 6 {
			wait()
		}
		f.requireCalls(t, "compact", "compact", "compact", "compact", "compact", "compact")
		f.revision, f.members["a"].uncounted = 8, 37 // people have deleted
		wait()
		wait()
		wait()
		f.requireCalls(t, "compact", "compact", "compact")
		wait()
		f.requireCalls(t, "compact", "defragment a", "disarm NOSPACE of 1")
	})
}

// A new hub may find a history that an earlier hub has compacted. It defragments once as well.
func TestUncountedPagesOfAnEarlierHub(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 100, used: 98, uncounted: 40}, fakeMember{file: 50, used: 50})
	f.alarm, f.compacted = 1, 7
	runExternal(t, f, func(_ *ExternalEtcd, wait func()) {
		wait()
		wait()
		wait()
		f.requireCalls(t, "compact", "compact", "compact", "compact", "defragment a", "disarm NOSPACE of 1")
	})
}

// A member that does not answer may be in a defragmentation: no other member is defragmented, the
// state of the others counts, and the log shows it once.
func TestAnExternalMemberThatIsDown(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 100, used: 60}, fakeMember{isDown: true})
	f.alarm = 1
	var log strings.Builder
	runLoggedExternal(t, f, slog.NewTextHandler(&log, nil), func(x *ExternalEtcd, wait func()) {
		wait()
		wait()
		if x.Space().State != SpaceFull {
			t.Errorf("%v with an alarm", x.Space().State)
		}
		f.requireCalls(t, "compact", "compact", "compact")
		if n := strings.Count(log.String(), "endpoint=b"); n != 1 {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		f.members["a"].isDown = true
		if wait(); x.Space().State != SpaceFull {
			t.Errorf("%v without any answer", x.Space().State)
		}
		f.requireCalls(t)
	})
}

// The state is read again before each defragmentation, because another hub may make room as well.
func TestAnExternalEtcdThatIsFreedInBetween(t *testing.T) {
	for name, after := range map[string]func(f *fakeCluster){
		"the alarm is taken back": func(f *fakeCluster) { f.alarm = 0 },
		"a member is down":        func(f *fakeCluster) { f.members["a"].isDown = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(fakeMember{file: 100, used: 60}, fakeMember{file: 100, used: 60})
			f.alarm = 1
			f.afterDefragment = func(string) { after(f) }
			runExternal(t, f, func(_ *ExternalEtcd, wait func()) {
				wait()
				f.requireCalls(t, "compact", "compact", "defragment a")
			})
		})
	}
}

// An alarm of a member that no endpoint reaches stays: it would be raised again at the next write.
func TestAnAlarmOfAMemberThatIsNotReached(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 100, used: 60}, fakeMember{file: 60, used: 60})
	f.alarm = 0xabc
	var log strings.Builder
	runLoggedExternal(t, f, slog.NewTextHandler(&log, nil), func(x *ExternalEtcd, wait func()) {
		wait()
		f.requireCalls(t, "compact", "compact", "defragment a")
		wait()
		wait()
		f.requireCalls(t, "compact", "compact")
		if s := x.Space(); s.State != SpaceFull || !s.HasUnreachedAlarm {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), "member=abc"); n != 1 {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		// An address of several members reaches that member for the first time.
		f.members["b"].id = 0xabc
		wait()
		f.requireCalls(t, "compact", "disarm NOSPACE of 2748")
		if wait(); x.Space().State != SpaceFree || x.Space().HasUnreachedAlarm {
			t.Errorf("%+v after the alarm", x.Space())
		}
	})
}

// Without a quota only the alarm counts, and it is left to the administrator.
func TestAnExternalEtcdWithoutAQuota(t *testing.T) {
	f := newFakeCluster(fakeMember{file: 1000, used: 999}, fakeMember{file: 1000, used: 5})
	f.quota = 0
	runExternal(t, f, func(x *ExternalEtcd, wait func()) {
		if x.Space().State != SpaceFree {
			t.Errorf("%v without an alarm", x.Space().State)
		}
		f.requireCalls(t)
		f.alarm = 1
		if wait(); x.Space().State != SpaceFull {
			t.Errorf("%v with an alarm", x.Space().State)
		}
		f.requireCalls(t, "compact")
	})
}
