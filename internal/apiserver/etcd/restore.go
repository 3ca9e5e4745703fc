package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// revisionBump is by how much a restored store's revisions are ahead of the
// snapshot's. It is more than a hub can have written after the snapshot, so that
// no revision is ever given out twice.
const revisionBump = 1_000_000_000

// WriteSnapshot writes a consistent copy of the database, with a checksum that RestoreSnapshot
// verifies, and returns a revision that the copy holds at least. It calls begin once, with the
// number of bytes that follow, before it writes to what begin returns: no copy is kept in between.
func WriteSnapshot(ctx context.Context, client *clientv3.Client, begin func(size int64) (io.Writer, error)) (revision int64, err error) {
	got, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read the revision of etcd: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream where it was not read to its end
	// The client's own Snapshot hides the size.
	stream, err := pb.NewMaintenanceClient(client.ActiveConnection()).Snapshot(ctx, &pb.SnapshotRequest{})
	if err == nil {
		err = copySnapshot(stream, begin)
	}
	if err != nil {
		return 0, fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	return got.Header.Revision, nil
}

// copySnapshot copies a stream whose first part has the number of bytes of the database that follow. The
// last part is the checksum.
func copySnapshot(stream pb.Maintenance_SnapshotClient, begin func(size int64) (io.Writer, error)) error {
	part, err := stream.Recv()
	if err != nil {
		return err
	}
	size := int64(len(part.Blob)) + int64(part.RemainingBytes) + sha256.Size
	w, err := begin(size)
	if err != nil {
		return err
	}
	for written := int64(0); ; {
		n, err := w.Write(part.Blob)
		if err != nil {
			return err
		}
		written += int64(n)
		if part, err = stream.Recv(); errors.Is(err, io.EOF) && written == size {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", written, size, err)
		}
	}
}

// RestoreSnapshot makes the data directory dir, which must not exist or be empty, from a snapshot.
// Revisions continue far above the snapshot's, and everything older counts as compacted: a client
// that has seen a later state than the snapshot's must list again, and never sees revisions go
// back.
func RestoreSnapshot(ctx context.Context, snapshotFile, dir string, logger *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make etcd directory %s: %w", dir, err)
	}
	err := snapshot.NewV3(zap.New(newCore(ctx, logger))).Restore(snapshot.RestoreConfig{
		SnapshotPath:        snapshotFile,
		Name:                memberName,
		OutputDataDir:       dir,
		PeerURLs:            []string{peerAddress},
		InitialCluster:      memberName + "=" + peerAddress,
		InitialClusterToken: clusterToken,
		RevisionBump:        revisionBump,
		MarkCompacted:       true,
	})
	if err != nil {
		return fmt.Errorf("restore etcd into %s: %w", dir, err)
	}
	return nil
}
