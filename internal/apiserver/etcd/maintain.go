package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	maintainEvery = 5 * time.Minute
	// defragMinimum is the smallest gain (bytes) worth stopping writes for.
	defragMinimum = 64 << 20
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
		if !worthDefragmenting(status.DbSize, status.DbSizeInUse, written) {
			continue
		}
		s.defragment(ctx, client, status)
	}
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
