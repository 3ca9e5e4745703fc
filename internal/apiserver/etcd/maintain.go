package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// observeEvery is how often the state of the store is read without a write.
	observeEvery = time.Second
	// maintainEvery is the interval of maintenance while there is room, and cleanEvery while there is none.
	maintainEvery = 5 * time.Minute
	cleanEvery    = 10 * time.Second
	// defragMinimum is the smallest gain (bytes) worth stopping writes for.
	defragMinimum = 64 << 20
	// remeasureAfter is how long after a defragmentation a full store is defragmented again to find out
	// what deletions gave back: etcd counts freed pages at its next writes, and there are none.
	remeasureAfter = 30 * time.Second
	// measureKey is written in the reserve, so that etcd counts freed pages. It lies outside of the
	// prefix that the API server uses.
	measureKey = "/atoll.dev/measured"
	// idleWrites is how many revisions an idle interval has at most.
	idleWrites = 300
)

// StartMaintenance gives unused space back to the file system in quiet moments, and as soon as it
// can while the store lacks room, until Stop. Call it once.
func (s *EmbeddedEtcd) StartMaintenance(client *clientv3.Client) {
	ctx, cancel := context.WithCancel(client.Ctx())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.maintainPeriodically(ctx, client)
	}()
	s.keeper = func() {
		cancel()
		<-finished
	}
}

func (s *EmbeddedEtcd) maintainPeriodically(ctx context.Context, client *clientv3.Client) {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	last, revision := time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := s.updateSpace(s.hasAlarm())
		due := maintainEvery
		if now.State != SpaceFree || mustDefragment(now.StoreUsage) {
			due = cleanEvery
		}
		if time.Since(last) >= due {
			revision = s.maintainSpaceSinceRevision(ctx, client, now, revision)
			last = time.Now()
		}
	}
}

// maintainSpaceSinceRevision compacts, defragments and takes back the alarm where that is due, and returns the
// revision of the store. before is the revision of the last time.
func (s *EmbeddedEtcd) maintainSpaceSinceRevision(ctx context.Context, client *clientv3.Client, now StoreSpace, before int64) int64 {
	revision := s.etcd.Server.KV().Rev()
	switch now.State {
	case SpaceFull:
		s.compactHistory(ctx, client, revision)
	case SpaceReserve: // readers that page through a list keep their revision for a while
		s.compactHistory(ctx, client, before)
		s.commitToCountFreedPages(ctx, client)
	}
	u := s.readUsage(now.Alarm)
	remeasure := now.State == SpaceFull && s.unmeasured && time.Since(s.defragmented) >= remeasureAfter
	if remeasure || mustDefragment(u) || worthDefragmenting(u.FileBytes, u.UsedBytes, revision-before) {
		s.defragmentFile(ctx, client, u)
		u = s.readUsage(now.Alarm)
	}
	if canDisarmAlarm(u) {
		s.clearSpaceAlarm(ctx, client)
	}
	s.updateSpace(s.hasAlarm())
	return revision
}

// compactHistory drops the history up to the revision, unless that was done; it is back when the pages are free.
func (s *EmbeddedEtcd) compactHistory(ctx context.Context, client *clientv3.Client, revision int64) {
	if revision <= s.etcd.Server.KV().FirstRev() {
		return
	}
	_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		s.logger.Warn("could not compact the database; it will be tried again", zap.Error(err))
		return
	}
	s.unmeasured = true
}

// commitToCountFreedPages makes etcd count the pages that earlier writes have freed.
func (s *EmbeddedEtcd) commitToCountFreedPages(ctx context.Context, client *clientv3.Client) {
	if _, err := client.Put(ctx, measureKey, ""); err != nil {
		s.logger.Warn("could not measure the database; it will be tried again", zap.Error(err))
		return
	}
	s.etcd.Server.Backend().ForceCommit()
}

// clearSpaceAlarm lets a store take writes again that refused them because it was full.
func (s *EmbeddedEtcd) clearSpaceAlarm(ctx context.Context, client *clientv3.Client) {
	alarm := &clientv3.AlarmMember{MemberID: uint64(s.etcd.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
	if _, err := client.AlarmDisarm(ctx, alarm); err != nil {
		s.logger.Warn("could not clear the alarm of a full database; it will be tried again", zap.Error(err))
	}
}

func (s *EmbeddedEtcd) defragmentFile(ctx context.Context, client *clientv3.Client, before StoreUsage) {
	begin := time.Now()
	if _, err := client.Defragment(ctx, s.endpoint); err != nil {
		s.logger.Warn("could not defragment the database; it will be tried again", zap.Error(err))
		return
	}
	s.unmeasured, s.defragmented = false, time.Now()
	s.logger.Info("defragmented the database", zap.Int64("bytesBefore", before.FileBytes),
		zap.Int64("bytesInUse", before.UsedBytes), zap.Duration("took", time.Since(begin)))
}

// worthDefragmenting weighs what defragmentation would give back against the
// writes that would have to wait for it.
func worthDefragmenting(size, inUse, writtenSinceLast int64) bool {
	free := size - inUse
	return free >= defragMinimum && free*2 >= size && writtenSinceLast <= idleWrites
}
