// Package backup saves a hub's state to one file and makes a hub from it again.
//
// Contract: a backup is a tar file of mode 0600 with a manifest, the key set,
// and a consistent snapshot of the embedded etcd, each with its checksum; it is
// complete or absent. It holds every Secret and every key of the hub, so it is
// worth as much protection as the hub itself. A running hub goes on while it is
// saved; a stopped one is locked meanwhile. Restore verifies all of a backup
// before it makes anything of it, writes only into an empty directory, and
// leaves one that a hub accepts or one that it refuses by name, whatever the
// moment of a crash. Revisions go on far above the saved ones and a marker tells
// the hub that its history was cut. Of a hub on an external etcd only the key
// set is saved, and the report says so.
package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/apiserver/keys"
)

const (
	formatVersion = 1
	manifestName  = "manifest.json"
	snapshotName  = "etcd.snapshot"
	keysPrefix    = "keys/"
	markerName    = "restored"
	maxKeyBytes   = 1 << 20
)

// Manifest describes a backup; it is the last entry of the file.
type Manifest struct {
	// Format is the version of this layout.
	Format int `json:"format"`
	// Time is when the backup was made, Version which Atoll made it.
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	// KeysOnly says that etcd is external and not part of the backup.
	KeysOnly bool `json:"keysOnly,omitempty"`
	// Revision is one that the snapshot holds at least.
	Revision int64 `json:"revision,omitempty"`
	// Files are the SHA-256 sums of the other entries.
	Files map[string]string `json:"files"`
}

// Report is what became of a Save or a Restore.
type Report struct {
	Manifest
	// Checksum is the SHA-256 sum of the whole file.
	Checksum string
	// Note says what the backup does not hold, or is empty.
	Note string
}

// Marker is what Restore leaves for the hub.
type Marker struct {
	// Time is when the hub was restored.
	Time time.Time `json:"time"`
	// Source is the checksum of the backup, BackupTime when it was made.
	Source     string    `json:"source"`
	BackupTime time.Time `json:"backupTime"`
}

const externalNote = "this hub's etcd is external and not in the backup: save and restore it with etcd's own tools, restoring with a revision bump (etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted)"

// Options are common to Save and Restore. All fields are required but KeysDir.
type Options struct {
	// DataDir is the hub's data directory, File the backup.
	DataDir, File string
	// KeysDir is where a hub to save has its keys. Default: DataDir/keys, where Restore puts
	// them.
	KeysDir string
	// Version is the version of Atoll that runs.
	Version string
	Logger  *slog.Logger
}

// Save writes a backup of the hub in DataDir, running or not, to File, which
// must not exist.
func Save(ctx context.Context, o Options) (*Report, error) {
	if _, err := os.Stat(o.File); err == nil {
		return nil, fmt.Errorf("%s exists already; choose another name", o.File)
	}
	if o.KeysDir == "" {
		o.KeysDir = filepath.Join(o.DataDir, "keys")
		if _, err := os.Stat(o.KeysDir); err != nil {
			return nil, fmt.Errorf("%s is no data directory of a hub: %w", o.DataDir, err)
		}
	}
	out, err := os.CreateTemp(filepath.Dir(o.File), ".backup-*")
	if err != nil {
		return nil, fmt.Errorf("make backup file: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	report, err := write(ctx, o, out)
	if err != nil {
		return nil, err
	}
	if err := out.Sync(); err != nil {
		return nil, fmt.Errorf("write %s: %w", o.File, err)
	}
	// A link, unlike a rename, never replaces a file.
	if err := os.Link(out.Name(), o.File); err != nil {
		return nil, fmt.Errorf("write %s: %w", o.File, err)
	}
	return report, datadir.Sync(filepath.Dir(o.File))
}

func write(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	sum := sha256.New()
	w := &writer{tar: tar.NewWriter(io.MultiWriter(out, sum)), manifest: Manifest{
		Format: formatVersion, Time: time.Now().UTC(), Version: o.Version, Files: map[string]string{},
	}}
	for _, name := range keys.Files() {
		if err := w.file(keysPrefix+name, filepath.Join(o.KeysDir, name)); err != nil {
			return nil, err
		}
	}
	if err := w.snapshot(ctx, o); err != nil {
		return nil, err
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	report := &Report{Manifest: w.manifest, Checksum: hex.EncodeToString(sum.Sum(nil))}
	if report.KeysOnly {
		report.Note = externalNote
	}
	return report, nil
}

// writer adds entries to the tar file and their sums to the manifest.
type writer struct {
	tar      *tar.Writer
	manifest Manifest
}

func (w *writer) file(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	if err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: w.manifest.Time}); err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w.tar, sum), f); err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	w.manifest.Files[name] = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// snapshot adds the embedded etcd's, if there is one. It goes through a file
// beside the backup, because an entry's size is written before it.
func (w *writer) snapshot(ctx context.Context, o Options) error {
	dir := filepath.Join(o.DataDir, "etcd")
	embedded, err := etcd.HasData(dir)
	if err != nil {
		return fmt.Errorf("look into %s: %w", dir, err)
	}
	if w.manifest.KeysOnly = !embedded; w.manifest.KeysOnly {
		return nil
	}
	spool, err := os.CreateTemp(filepath.Dir(o.File), ".snapshot-*")
	if err != nil {
		return fmt.Errorf("make snapshot file: %w", err)
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	if w.manifest.Revision, err = takeSnapshot(ctx, o, dir, spool); err != nil {
		return err
	}
	return w.file(snapshotName, spool.Name())
}

// takeSnapshot asks the hub that runs in the data directory, or, when none
// does, its etcd, which is started for the purpose.
func takeSnapshot(ctx context.Context, o Options, dir string, out io.Writer) (int64, error) {
	lock, err := datadir.Open(o.DataDir, o.Version)
	var inUse *datadir.InUseError
	if errors.As(err, &inUse) {
		client, release, err := etcd.Connect(ctx, dir)
		if err != nil {
			return 0, fmt.Errorf("reach the hub that runs in %s: %w", o.DataDir, err)
		}
		defer release()
		return etcd.Snapshot(ctx, client, out)
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	server, err := etcd.Start(ctx, etcd.Options{Dir: dir, Logger: o.Logger})
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	client, err := server.Client(ctx)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return etcd.Snapshot(ctx, client, out)
}

func (w *writer) finish() error {
	content, err := json.MarshalIndent(w.manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	err = w.tar.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(content)), ModTime: w.manifest.Time})
	if err == nil {
		_, err = w.tar.Write(content)
	}
	if err == nil {
		err = w.tar.Close()
	}
	if err != nil {
		return fmt.Errorf("save the manifest: %w", err)
	}
	return nil
}

// Restore makes DataDir, which must be absent or empty, from the backup File.
func Restore(ctx context.Context, o Options) (*Report, error) {
	report, err := verify(o)
	if err != nil {
		return nil, err
	}
	dir, err := datadir.OpenEmpty(o.DataDir, report.Version)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, o, dir, report); err != nil {
		return nil, errors.Join(err, dir.Abandon())
	}
	defer dir.Close()
	return report, dir.Finish()
}

// fill puts what the backup holds into an empty data directory.
func fill(ctx context.Context, o Options, dir *datadir.Dir, report *Report) error {
	if err := extract(o.File, dir); err != nil {
		return err
	}
	if _, err := keys.LoadOrCreate(dir.Path("keys"), false); err != nil {
		return fmt.Errorf("the backup's key set: %w", err)
	}
	if report.KeysOnly {
		report.Note = externalNote
		return nil
	}
	if err := etcd.Restore(ctx, dir.Path(snapshotName), dir.Path("etcd"), o.Logger); err != nil {
		return err
	}
	if err := os.Remove(dir.Path(snapshotName)); err != nil {
		return fmt.Errorf("remove the extracted snapshot: %w", err)
	}
	marker, err := json.Marshal(Marker{Time: time.Now().UTC(), Source: report.Checksum, BackupTime: report.Time})
	if err != nil {
		return fmt.Errorf("encode the marker: %w", err)
	}
	return datadir.WriteFile(dir.Path(markerName), append(marker, '\n'), 0o600)
}

// ReadMarker returns what Restore left in a data directory, or nil when there
// is nothing.
func ReadMarker(dataDir string) (*Marker, error) {
	content, err := os.ReadFile(filepath.Join(dataDir, markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the marker of a restore: %w", err)
	}
	m := &Marker{}
	if err := json.Unmarshal(content, m); err != nil {
		return nil, fmt.Errorf("read the marker of a restore in %s: %w", dataDir, err)
	}
	return m, nil
}

// ClearMarker removes what Restore left, once the hub has acted on it.
func ClearMarker(dataDir string) error {
	err := os.Remove(filepath.Join(dataDir, markerName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the marker of a restore: %w", err)
	}
	return nil
}

// verify reads the whole backup and compares every sum.
func verify(o Options) (*Report, error) {
	f, err := os.Open(o.File)
	if err != nil {
		return nil, fmt.Errorf("open backup: %w", err)
	}
	defer f.Close()
	whole := sha256.New()
	source := io.TeeReader(f, whole)
	sums, report := map[string]string{}, &Report{}
	found := false
	err = eachEntry(source, func(name string, r io.Reader) error {
		if name == manifestName {
			found = true
			return json.NewDecoder(io.LimitReader(r, maxKeyBytes)).Decode(&report.Manifest)
		}
		sum := sha256.New()
		_, err := io.Copy(sum, r)
		sums[name] = hexSum(sum)
		return err
	})
	if err == nil {
		_, err = io.Copy(io.Discard, source)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged or no backup: %w", o.File, err)
	}
	report.Checksum = hexSum(whole)
	if !found || report.Format != formatVersion {
		return nil, fmt.Errorf("%s is no backup, or one of a format that Atoll %s does not know", o.File, o.Version)
	}
	if err := report.check(sums); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", o.File, err)
	}
	return report, datadir.CheckVersion("the backup "+o.File, report.Version, o.Version)
}

func (m *Manifest) check(sums map[string]string) error {
	want := keys.Files()
	for i := range want {
		want[i] = keysPrefix + want[i]
	}
	if !m.KeysOnly {
		want = append(want, snapshotName)
	}
	for _, name := range want {
		if sums[name] == "" || sums[name] != m.Files[name] {
			return fmt.Errorf("%s is missing or not as it was saved", name)
		}
	}
	if len(sums) != len(want) {
		return fmt.Errorf("it holds %d files and should hold %d", len(sums), len(want))
	}
	return nil
}

// extract writes the entries of a verified backup.
func extract(file string, dir *datadir.Dir) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("open backup: %w", err)
	}
	defer f.Close()
	if err := os.Mkdir(dir.Path("keys"), 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	err = eachEntry(f, func(name string, r io.Reader) error {
		if name == manifestName {
			return nil
		}
		out, err := os.OpenFile(dir.Path(filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer out.Close()
		if _, err := io.Copy(out, r); err != nil {
			return err
		}
		return out.Sync()
	})
	if err != nil {
		return fmt.Errorf("extract %s: %w", file, err)
	}
	return datadir.Sync(dir.Path("keys"))
}

// eachEntry calls f for every entry, refusing names that are not a backup's.
func eachEntry(r io.Reader, f func(name string, r io.Reader) error) error {
	known := map[string]bool{manifestName: true, snapshotName: true}
	for _, name := range keys.Files() {
		known[keysPrefix+name] = true
	}
	t := tar.NewReader(r)
	for {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !known[header.Name] {
			return fmt.Errorf("unknown entry %q", header.Name)
		}
		if err := f(header.Name, t); err != nil {
			return fmt.Errorf("entry %s: %w", header.Name, err)
		}
	}
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
