package etcd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// revisionBump is by how much a restored store's revisions are ahead of the
// snapshot's. It is more than a hub can have written after the snapshot, so that
// no revision is ever given out twice.
const revisionBump = 1_000_000_000

// Snapshot writes a consistent copy of the database, with a checksum that
// Restore verifies, to w, and returns a revision that the copy holds at least.
func Snapshot(ctx context.Context, client *clientv3.Client, w io.Writer) (revision int64, err error) {
	got, err := client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read the revision of etcd: %w", err)
	}
	r, err := client.Snapshot(ctx)
	if err != nil {
		return 0, fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(w, r); err != nil {
		return 0, fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	return got.Header.Revision, nil
}

// Restore makes the data directory dir, which must not exist or be empty, from
// a snapshot. Revisions continue far above the snapshot's, and everything older
// counts as compacted: whoever has seen a later state than the snapshot's is
// told to read anew instead of hearing of revisions that went back.
func Restore(ctx context.Context, snapshotFile, dir string, logger *slog.Logger) error {
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
