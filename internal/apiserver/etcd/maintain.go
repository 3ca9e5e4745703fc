package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	maintainEvery = 5 * time.Minute
	// defragMinimum is the smallest gain (bytes) worth stopping writes for.
	defragMinimum = 64 << 20
	// reserve is which part of the quota must be free before a full store
	// takes writes again: a tenth.
	reserve = 10
	// idleWrites is how many revisions an idle interval has at most.
	idleWrites = 300
)

// Maintain gives unused space back to the file system in quiet moments, until
// Stop. Call it once.
func (s *Server) Maintain(client *clientv3.Client) {
	ctx, cancel := context.WithCancel(client.Ctx())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.maintain(ctx, client)
	}()
	s.keeper = func() {
		cancel()
		<-finished
	}
}

func (s *Server) maintain(ctx context.Context, client *clientv3.Client) {
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	var last int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		status, err := client.Status(ctx, s.endpoint)
		if err != nil {
			continue
		}
		written := status.Header.Revision - last
		last = status.Header.Revision
		full := isFull(ctx, client)
		if full || worthDefragmenting(status.DbSize, status.DbSizeInUse, written) {
			s.defragment(ctx, client, status)
		}
		if full {
			s.reopen(ctx, client)
		}
	}
}

// isFull tells whether the store refuses writes for lack of room.
func isFull(ctx context.Context, client *clientv3.Client) bool {
	alarms, err := client.AlarmList(ctx)
	return err == nil && slices.ContainsFunc(alarms.Alarms, func(a *pb.AlarmMember) bool { return a.Alarm == pb.AlarmType_NOSPACE })
}

// reopen lets a store take writes again that refused them because it was full,
// once there is room.
func (s *Server) reopen(ctx context.Context, client *clientv3.Client) {
	status, err := client.Status(ctx, s.endpoint)
	if err != nil {
		return
	}
	if status.DbSize > s.quota-s.quota/reserve {
		s.logger.Error("the database is full and takes no writes; delete what is not needed, or restore a backup with a larger quota",
			zap.Int64("bytes", status.DbSize), zap.Int64("quota", s.quota))
		return
	}
	alarm := &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := client.AlarmDisarm(ctx, alarm); err != nil {
		s.logger.Warn("could not clear the alarm of a full database; it will be tried again", zap.Error(err))
		return
	}
	s.logger.Warn("the database was full and has room again; it takes writes", zap.Int64("bytes", status.DbSize))
}

func (s *Server) defragment(ctx context.Context, client *clientv3.Client, before *clientv3.StatusResponse) {
	begin := time.Now()
	if _, err := client.Defragment(ctx, s.endpoint); err != nil {
		s.logger.Warn("could not defragment the database; it will be tried again", zap.Error(err))
		return
	}
	s.logger.Info("defragmented the database", zap.Int64("bytesBefore", before.DbSize),
		zap.Int64("bytesInUse", before.DbSizeInUse), zap.Duration("took", time.Since(begin)))
}

// worthDefragmenting weighs what defragmentation would give back against the
// writes that would have to wait for it.
func worthDefragmenting(size, inUse, writtenSinceLast int64) bool {
	free := size - inUse
	return free >= defragMinimum && free*2 >= size && writtenSinceLast <= idleWrites
}
