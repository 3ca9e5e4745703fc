package etcd

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// externalTimeout bounds a request to a member of an external etcd.
const externalTimeout = 5 * time.Second

// maintenanceClient is what External calls of a client of etcd.
type maintenanceClient interface {
	Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error)
	AlarmList(ctx context.Context) (*clientv3.AlarmResponse, error)
	AlarmDisarm(ctx context.Context, m *clientv3.AlarmMember) (*clientv3.AlarmResponse, error)
	Defragment(ctx context.Context, endpoint string) (*clientv3.DefragmentResponse, error)
	Compact(ctx context.Context, revision int64, o ...clientv3.CompactOption) (*clientv3.CompactResponse, error)
}

// ExternalEtcd observes the room of an etcd that the hub does not run, and makes room while etcd refuses
// writes, as far as a client can. Sizes are those of the member with the least room. An etcd before
// 3.6 does not report its quota: then only the alarm counts, and there is no reserve.
type ExternalEtcd struct {
	client    maintenanceClient
	endpoints []string
	logger    *slog.Logger
	space     atomic.Pointer[StoreSpace]
	// startDelay lies between the first observation and the second, which may defragment. It differs
	// by hub, so that hubs that start together do not defragment together.
	startDelay time.Duration

	mu      sync.Mutex // guards onSpace, and the order of its calls
	onSpace func(StoreSpace)

	// Only Run uses the fields below. revision is that of the last observation, 0 before the first.
	revision int64
	relief   externalRelief
}

// NewExternal returns an ExternalEtcd with these endpoints. Its store counts as free before the
// first observation. Its store counts as free before the first observation.
func NewExternal(client maintenanceClient, endpoints []string, logger *slog.Logger) *ExternalEtcd {
	x := &ExternalEtcd{client: client, endpoints: endpoints, logger: logger, startDelay: rand.N(cleanEvery)}
	x.space.Store(&StoreSpace{IsExternal: true, Since: time.Now()})
	return x
}

// Run observes etcd every 10 seconds until ctx ends.
func (x *ExternalEtcd) Run(ctx context.Context) {
	timer := time.NewTimer(x.startDelay)
	defer timer.Stop()
	for {
		x.observeMembers(ctx)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(cleanEvery)
		}
	}
}

// Space returns the state as of the last observation.
func (x *ExternalEtcd) Space() StoreSpace { return *x.space.Load() }

// OnSpaceChange calls fn with the present state, and with each new one. Calls follow each other; fn
// must not block, nor call ExternalEtcd. Call it once. Calls follow each other; fn must not block,
// nor call the External. Call it once.
func (x *ExternalEtcd) OnSpaceChange(fn func(StoreSpace)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.onSpace = fn
	fn(*x.space.Load())
}

// observeMembers reads the state, and makes room where it lacks.
func (x *ExternalEtcd) observeMembers(ctx context.Context) {
	o := x.readMembers(ctx)
	if len(o.members) == 0 {
		return // the last state counts
	}
	switch x.setSpace(o.total).State {
	case SpaceFull:
		x.relieveFull(ctx, o.revision)
	case SpaceReserve: // readers that page through a list keep their revision for a while
		x.compactHistory(ctx, x.revision)
		x.relief = externalRelief{}
	default:
		x.relief = externalRelief{}
	}
	x.revision = o.revision
}

// memberUsage is what a member has reported by an endpoint. An address of several members reports
// one of them each time.
type memberUsage struct {
	StoreUsage
	id       uint64
	endpoint string
}

// memberObservation is what the members have reported, at about one time.
type memberObservation struct {
	members []memberUsage
	// total has the sizes of the member with the least room.
	total StoreUsage
	// revision of the store.
	revision int64
	// silent is an endpoint that did not answer, empty where each did.
	silent string
}

// hasMember reports whether the member has answered.
func (o *memberObservation) hasMember(id uint64) bool {
	return slices.ContainsFunc(o.members, func(m memberUsage) bool { return m.id == id })
}

// readMembers reads the sizes of each member. Requests to the store report why a member does not answer.
func (x *ExternalEtcd) readMembers(ctx context.Context) (o memberObservation) {
	for _, endpoint := range x.endpoints {
		status, err := x.readStatus(ctx, endpoint)
		if err != nil {
			o.silent = endpoint
			continue
		}
		o.members = append(o.members, memberUsage{StoreUsage{}.withMember(status), status.Header.GetMemberId(), endpoint})
		o.total, o.revision = o.total.withMember(status), max(o.revision, status.Header.GetRevision())
	}
	return o
}

func (x *ExternalEtcd) readStatus(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	return x.client.Status(ctx, endpoint)
}

// withMember returns the usage with the sizes of one more member.
func (u StoreUsage) withMember(status *clientv3.StatusResponse) StoreUsage {
	u.FileBytes, u.UsedBytes = max(u.FileBytes, status.DbSize), max(u.UsedBytes, status.DbSizeInUse)
	if quota := status.DbSizeQuota; quota > 0 && (u.QuotaBytes == 0 || quota < u.QuotaBytes) {
		u.QuotaBytes, u.LimitBytes = quota, quota
	}
	for _, text := range status.Errors {
		u.Alarm = u.Alarm || strings.Contains(text, pb.AlarmType_NOSPACE.String())
	}
	return u
}

// nextExternalSpaceState returns the state that follows. A file at its quota is no lack: etcd takes writes
// into its unused pages, until it raises the alarm.
func nextExternalSpaceState(before StoreSpaceState, u StoreUsage) StoreSpaceState {
	switch {
	case u.Alarm:
		return SpaceFull
	case u.QuotaBytes == 0:
		return SpaceFree
	case u.UsedBytes >= u.ReserveEntryBytes(), before != SpaceFree && u.UsedBytes >= u.ReserveExitBytes():
		return SpaceReserve
	}
	return SpaceFree
}

// setSpace stores the state, and logs and reports it where it is another one.
func (x *ExternalEtcd) setSpace(u StoreUsage) StoreSpace {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.space.Load()
	next := &StoreSpace{StoreUsage: u, State: nextExternalSpaceState(before.State, u), Since: before.Since, IsExternal: true, HasUnreachedAlarm: u.Alarm && x.relief.hasUnreachedAlarm}
	if next.State != before.State {
		next.Since = time.Now()
		x.logSpace(next)
	}
	x.space.Store(next)
	if x.onSpace != nil && next.State != before.State {
		x.onSpace(*next)
	}
	return *next
}

func (x *ExternalEtcd) logSpace(now *StoreSpace) {
	sizes := []any{"usedBytes", now.UsedBytes, "fileBytes", now.FileBytes, "quotaBytes", now.QuotaBytes}
	switch now.State {
	case SpaceFull:
		x.logger.Error("the external etcd is full and has raised its alarm NOSPACE: it takes deletions only; delete what is not needed, or raise its --quota-backend-bytes", sizes...)
	case SpaceReserve:
		x.logger.Warn("the external etcd is nearly full: writes that grow it are refused; delete what is not needed, or raise its --quota-backend-bytes", sizes...)
	default:
		x.logger.Warn("the external etcd has room again: every write is taken", sizes...)
	}
}
