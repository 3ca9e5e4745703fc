package etcd

import (
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// The bounds, in percent of the quota. Between reservePercent and the quota only the hub itself and
// writes that shrink the store go on, so that objects with finalizers can still be deleted.
const (
	reservePercent = 90 // in use: the reserve begins
	leavePercent   = 85 // in use: the reserve ends
	disarmPercent  = 95 // size of the file: below it an alarm ends, above it the reserve begins
	gainPercent    = 5  // smallest gain of a defragmentation that does not wait for a quiet moment
	startPercent   = 10 // room above the present file that etcd has at a start
	watchPercent   = 50 // in use: writes wait for a commit before they could fill the reserve unseen
)

// largestWrite is the number of bytes that one write adds at most: the bound of the API server's requests.
const largestWrite = 3 << 20

// The bounds of a stated quota.
const (
	MinQuotaBytes = 64 << 20
	MaxQuotaBytes = 32 << 30
)

// StoreSpaceState is how much room the store has.
type StoreSpaceState int

// The states, from the best to the worst.
const (
	// SpaceFree: every write is taken.
	SpaceFree StoreSpaceState = iota
	// SpaceReserve: writes of users that grow the store are refused.
	SpaceReserve
	// SpaceFull: etcd refuses every write that is not a deletion.
	SpaceFull
)

func (s StoreSpaceState) String() string { return [...]string{"Free", "Reserve", "Full"}[s] }

// StoreUsage is how large the store is.
type StoreUsage struct {
	// FileBytes is the size of the database, unused pages included; etcd compares it with the quota.
	FileBytes int64
	// UsedBytes is what is left of FileBytes after a defragmentation.
	UsedBytes int64
	// QuotaBytes is the stated quota.
	QuotaBytes int64
	// LimitBytes is the file size at which etcd refuses writes: the quota, or more after the start of
	// a full store.
	LimitBytes int64
	// Alarm: etcd has raised its alarm NOSPACE.
	Alarm bool
}

// ReserveEntryBytes is the number of bytes in use from which on writes that grow the store are refused.
func (u StoreUsage) ReserveEntryBytes() int64 { return percentOf(u.QuotaBytes, reservePercent) }

// ReserveExitBytes is the number of bytes in use below which every write is taken again.
func (u StoreUsage) ReserveExitBytes() int64 { return percentOf(u.QuotaBytes, leavePercent) }

// StoreSpace is the state of the store, and since when it is so.
type StoreSpace struct {
	StoreUsage
	State StoreSpaceState
	Since time.Time
	// IsExternal is true for an etcd that the hub does not run. A quota of 0 is not known.
	IsExternal bool
	// HasUnreachedAlarm: a member of an external etcd that no endpoint reaches has raised its alarm
	// NOSPACE, so that the hub cannot end the state.
	HasUnreachedAlarm bool
}

// nextSpaceState returns the state that follows. A store leaves the reserve at a lower bound than it
// enters it, so that one object cannot move it back and forth.
func nextSpaceState(before StoreSpaceState, u StoreUsage) StoreSpaceState {
	switch {
	case u.Alarm:
		return SpaceFull
	case u.UsedBytes >= u.ReserveEntryBytes(), u.FileBytes >= percentOf(u.LimitBytes, disarmPercent),
		before != SpaceFree && u.UsedBytes >= u.ReserveExitBytes():
		return SpaceReserve
	}
	return SpaceFree
}

// mustDefragment reports whether unused pages take room that the store needs now, however busy it is.
func mustDefragment(u StoreUsage) bool {
	if u.FileBytes < percentOf(u.QuotaBytes, disarmPercent) {
		return false
	}
	if u.FileBytes-u.UsedBytes >= percentOf(u.QuotaBytes, gainPercent) {
		return true
	}
	return u.Alarm && !canDisarmAlarm(u) && u.UsedBytes < percentOf(u.LimitBytes, disarmPercent)
}

// canDisarmAlarm reports whether a store that refuses writes has room for them.
func canDisarmAlarm(u StoreUsage) bool {
	return u.Alarm && u.FileBytes <= percentOf(u.LimitBytes, disarmPercent)
}

// startQuota returns the quota of an etcd that starts with a file of that size. A full store gets some
// room, because a hub must write to start, and objects with finalizers are written to be deleted.
func startQuota(stated, file int64) int64 {
	return max(stated, file+percentOf(stated, startPercent))
}

func percentOf(n, percent int64) int64 { return n * percent / 100 }

// mustCommit reports whether writes since the last commit may have filled half of the reserve: sizes are
// those of a commit, which a busy machine makes late.
func mustCommit(u StoreUsage, writes int64) bool {
	return u.UsedBytes >= percentOf(u.QuotaBytes, watchPercent) && writes*largestWrite >= (u.QuotaBytes-u.ReserveEntryBytes())/2
}

// Space returns the state of the store. It reads sizes in memory, so that each write may call it.
func (s *EmbeddedEtcd) Space() StoreSpace {
	u := s.readUsage(s.space.Load().Alarm)
	revision, committed := s.etcd.Server.KV().Rev(), s.committed.Load()
	if mustCommit(u, revision-committed) && s.committed.CompareAndSwap(committed, revision) {
		s.etcd.Server.Backend().ForceCommit()
		u = s.readUsage(u.Alarm)
	}
	if now := s.space.Load(); nextSpaceState(now.State, u) == now.State {
		return StoreSpace{StoreUsage: u, State: now.State, Since: now.Since}
	}
	return s.updateSpace(u.Alarm)
}

// OnSpaceChange calls fn with the present state, and with each new one. Calls follow each other; fn
// must not block, nor call EmbeddedEtcd. Call it once. Calls follow each other; fn must not block,
// nor call the Server. Call it once.
func (s *EmbeddedEtcd) OnSpaceChange(fn func(StoreSpace)) {
	s.spaceMu.Lock()
	defer s.spaceMu.Unlock()
	s.onSpace = fn
	fn(*s.space.Load())
}

// readUsage returns the sizes as of the last commit, at most 100 ms ago.
func (s *EmbeddedEtcd) readUsage(alarm bool) StoreUsage {
	backend := s.etcd.Server.Backend()
	return StoreUsage{FileBytes: backend.Size(), UsedBytes: backend.SizeInUse(), QuotaBytes: s.quota, LimitBytes: s.limit, Alarm: alarm}
}

// hasAlarm reports whether etcd refuses writes for lack of room.
func (s *EmbeddedEtcd) hasAlarm() bool {
	return slices.ContainsFunc(s.etcd.Server.Alarms(), func(a *pb.AlarmMember) bool { return a.Alarm == pb.AlarmType_NOSPACE })
}

// updateSpace reads the state, and logs and reports it where it is another one.
func (s *EmbeddedEtcd) updateSpace(alarm bool) StoreSpace {
	s.spaceMu.Lock()
	defer s.spaceMu.Unlock()
	before := s.space.Load()
	next := &StoreSpace{StoreUsage: s.readUsage(alarm), Since: before.Since}
	if next.State = nextSpaceState(before.State, next.StoreUsage); next.State != before.State {
		next.Since = time.Now()
		s.logSpace(next)
	}
	s.space.Store(next)
	if s.onSpace != nil && next.State != before.State {
		s.onSpace(*next)
	}
	return *next
}

// LogSpaceShortage logs the state of a store without room, for a caller that dropped the logs of the start.
func (s *EmbeddedEtcd) LogSpaceShortage() {
	if now := s.space.Load(); now.State != SpaceFree {
		s.logSpace(now)
	}
}

func (s *EmbeddedEtcd) logSpace(now *StoreSpace) {
	fields := []zap.Field{zap.Int64("usedBytes", now.UsedBytes), zap.Int64("fileBytes", now.FileBytes), zap.Int64("quotaBytes", now.QuotaBytes)}
	switch now.State {
	case SpaceFull:
		s.logger.Error("the store is full: it takes deletions only, and every write again within a minute after there is room; delete what is not needed, or restart the hub with a larger --etcd-quota-bytes", fields...)
	case SpaceReserve:
		s.logger.Warn("the store is nearly full: writes that grow it are refused; delete what is not needed, or restart the hub with a larger --etcd-quota-bytes", fields...)
	default:
		s.logger.Warn("the store has room again: every write is taken", fields...)
	}
}
