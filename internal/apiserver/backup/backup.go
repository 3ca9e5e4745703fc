// Package backup saves a hub's state to one file and makes a hub from it again.
//
// Contract: a backup is a tar file of mode 0600 with a manifest, the key set, and a consistent
// snapshot of the embedded etcd, each with its checksum. It is complete or absent. It holds every
// Secret and every key of the hub, so it needs as much protection as the hub itself, unless it has age
// recipients: it is then encrypted while it is written, and no plain copy is on a disk at any moment.
// A running hub goes on while it is saved; a stopped one is locked during the save. Restore verifies
// all of a backup before it writes, also that an encrypted one is authentic to its end. It writes
// only into an empty directory, in memory that does not depend on the file. It leaves a directory that
// a hub accepts or refuses by name, whatever the moment of a crash. Revisions continue far above the saved ones,
// and a marker shows the hub that its history was cut. A backup of a hub on an external etcd has
// only the key set, and the report states this.
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
	"strings"
	"time"

	"filippo.io/age"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/phrase"
)

const (
	formatVersion = 1
	manifestName  = "manifest.json"
	snapshotName  = "etcd.snapshot"
	keysPrefix    = "keys/"
	markerName    = "restored"
	// maxEntryBytes bounds every entry but the snapshot, which is the only one that is never in memory.
	maxEntryBytes = 1 << 20
	// maxVersionBytes bounds the version in a manifest.
	maxVersionBytes = 128
)

// Manifest describes a backup; it is the last entry of the file.
type Manifest struct {
	// Format is the version of this layout.
	Format int `json:"format"`
	// Time is when the backup was made, Version which Atoll made it.
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	// KeysOnly is true if etcd is external and not part of the backup.
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
	// Note is what the backup does not hold, or is empty.
	Note string
	// Encrypted is true if the file is encrypted by age.
	Encrypted bool
}

// RestoreMarker is what Restore leaves for the hub.
type RestoreMarker struct {
	// Time is when the hub was restored.
	Time time.Time `json:"time"`
	// Source is the checksum of the backup, BackupTime when it was made.
	Source     string    `json:"source"`
	BackupTime time.Time `json:"backupTime"`
}

const externalNote = "this hub's etcd is external and not in the backup: save and restore it with etcd's own tools, restoring with a revision bump (etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted)"

// Options are common to Save and Restore. All fields are required but KeysDir, Recipients and Identities.
type Options struct {
	// DataDir is the hub's data directory, File the backup.
	DataDir, File string
	// KeysDir is where a hub to save has its keys. Default: DataDir/keys, where Restore puts
	// them.
	KeysDir string
	// Recipients are those that a backup is encrypted to. Without them it is plain.
	Recipients []age.Recipient
	// Identities open an encrypted backup. A plain one is restored without them.
	Identities []age.Identity
	// Version is the version of Atoll that runs.
	Version string
	Logger  *slog.Logger
}

// SaveBackup writes a backup of the hub in DataDir, running or not, to File, which
// must not exist.
func SaveBackup(ctx context.Context, o Options) (*Report, error) {
	if _, err := os.Stat(o.File); err == nil {
		return nil, fmt.Errorf("%s exists already; choose another name", o.File)
	}
	if o.KeysDir == "" {
		o.KeysDir = filepath.Join(o.DataDir, "keys")
		if _, err := os.Stat(o.KeysDir); err != nil {
			return nil, fmt.Errorf("%s is no data directory of a hub: %w", o.DataDir, err)
		}
	}
	out, err := datadir.CreateTempRemovingLeftovers(filepath.Dir(o.File), ".atoll-backup-", time.Now())
	if err != nil {
		return nil, fmt.Errorf("make backup file: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	report, err := writeBackup(ctx, o, out)
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
	return report, datadir.SyncDirectory(filepath.Dir(o.File))
}

func writeBackup(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	sum := sha256.New()
	archive, err := encryptOrPassThrough(io.MultiWriter(out, sum), o.Recipients)
	if err != nil {
		return nil, err
	}
	w := &archiveWriter{tar: tar.NewWriter(archive), manifest: Manifest{
		Format: formatVersion, Time: time.Now().UTC(), Version: o.Version, Files: map[string]string{},
	}}
	for _, name := range keys.KeyFiles() {
		if err := w.addFile(keysPrefix+name, filepath.Join(o.KeysDir, name)); err != nil {
			return nil, err
		}
	}
	if err := w.addSnapshot(ctx, o); err != nil {
		return nil, err
	}
	if err := w.finishArchive(); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("encrypt the backup: %w", err)
	}
	report := &Report{Manifest: w.manifest, Checksum: hexSum(sum), Encrypted: len(o.Recipients) > 0}
	if report.KeysOnly {
		report.Note = externalNote
	}
	return report, nil
}

// archiveWriter adds entries to the tar file and their sums to the manifest.
type archiveWriter struct {
	tar      *tar.Writer
	manifest Manifest
}

func (w *archiveWriter) addFile(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	sum := sha256.New()
	entry, err := w.beginEntry(name, info.Size(), sum)
	if err == nil {
		_, err = io.Copy(entry, f)
	}
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	w.manifest.Files[name] = hexSum(sum)
	return nil
}

// beginEntry returns the writer of an entry's content, which it sums, too.
func (w *archiveWriter) beginEntry(name string, size int64, sum hash.Hash) (io.Writer, error) {
	err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: w.manifest.Time})
	return io.MultiWriter(w.tar, sum), err
}

// addSnapshot adds the embedded etcd's, if there is one.
func (w *archiveWriter) addSnapshot(ctx context.Context, o Options) error {
	dir := filepath.Join(o.DataDir, "etcd")
	embedded, err := etcd.HasEtcdData(dir)
	if err != nil {
		return fmt.Errorf("look into %s: %w", dir, err)
	}
	if w.manifest.KeysOnly = !embedded; w.manifest.KeysOnly {
		return nil
	}
	sum := sha256.New()
	w.manifest.Revision, err = takeSnapshot(ctx, o, dir, func(size int64) (io.Writer, error) {
		return w.beginEntry(snapshotName, size, sum)
	})
	w.manifest.Files[snapshotName] = hexSum(sum)
	return err
}

// takeSnapshot reads from the hub that runs in the data directory, or, when none does, from its
// etcd, which is started for the purpose.
func takeSnapshot(ctx context.Context, o Options, dir string, begin func(size int64) (io.Writer, error)) (int64, error) {
	lock, err := datadir.OpenLocked(o.DataDir, o.Version)
	var inUse *datadir.InUseError
	if errors.As(err, &inUse) {
		client, release, err := etcd.ConnectRunning(ctx, dir)
		if err != nil {
			return 0, fmt.Errorf("reach the hub that runs in %s: %w", o.DataDir, err)
		}
		defer release()
		return etcd.WriteSnapshot(ctx, client, begin)
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
	client, err := server.NewClient(ctx)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return etcd.WriteSnapshot(ctx, client, begin)
}

func (w *archiveWriter) finishArchive() error {
	content, err := json.MarshalIndent(w.manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	entry, err := w.beginEntry(manifestName, int64(len(content)), sha256.New())
	if err == nil {
		_, err = entry.Write(content)
	}
	if err == nil {
		err = w.tar.Close()
	}
	if err != nil {
		return fmt.Errorf("save the manifest: %w", err)
	}
	return nil
}

// RestoreDataDir makes DataDir, which must be absent or empty, from the backup File.
func RestoreDataDir(ctx context.Context, o Options) (*Report, error) {
	file, err := os.Open(o.File)
	if err != nil {
		return nil, fmt.Errorf("open backup: %w", err)
	}
	defer file.Close()
	report, err := verifyBackup(o, file)
	if err != nil {
		return nil, err
	}
	dir, err := datadir.OpenEmpty(o.DataDir, report.Version)
	if err != nil {
		return nil, err
	}
	if err := fillDataDir(ctx, o, file, dir, report); err != nil {
		return nil, errors.Join(err, dir.RemoveAll())
	}
	defer dir.Close()
	return report, dir.MarkComplete()
}

// fillDataDir puts what the backup holds into an empty data directory.
func fillDataDir(ctx context.Context, o Options, file io.ReadSeeker, dir *datadir.DataDir, report *Report) error {
	if err := extractEntries(o, file, dir, report.Checksum); err != nil {
		return err
	}
	if _, err := keys.LoadOrCreate(dir.FilePath("keys"), false); err != nil {
		return fmt.Errorf("the backup's key set: %w", err)
	}
	if report.KeysOnly {
		report.Note = externalNote
		return nil
	}
	if err := etcd.RestoreSnapshot(ctx, dir.FilePath(snapshotName), dir.FilePath("etcd"), o.Logger); err != nil {
		return err
	}
	if err := os.Remove(dir.FilePath(snapshotName)); err != nil {
		return fmt.Errorf("remove the extracted snapshot: %w", err)
	}
	marker, err := json.Marshal(RestoreMarker{Time: time.Now().UTC(), Source: report.Checksum, BackupTime: report.Time})
	if err != nil {
		return fmt.Errorf("encode the marker: %w", err)
	}
	return datadir.WriteFileAtomically(dir.FilePath(markerName), append(marker, '\n'), 0o600)
}

// ReadRestoreMarker returns what Restore left in a data directory, or nil when there
// is nothing.
func ReadRestoreMarker(dataDir string) (*RestoreMarker, error) {
	content, err := os.ReadFile(filepath.Join(dataDir, markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the marker of a restore: %w", err)
	}
	m := &RestoreMarker{}
	if err := json.Unmarshal(content, m); err != nil {
		return nil, fmt.Errorf("read the marker of a restore in %s: %w", dataDir, err)
	}
	return m, nil
}

// RestoreReason returns from what a data directory was restored; empty when it was not.
func RestoreReason(dataDir string) (string, error) {
	m, err := ReadRestoreMarker(dataDir)
	if err != nil || m == nil {
		return "", err
	}
	return fmt.Sprintf("the hub was restored at %s from the backup of %s", m.Time.Format(time.RFC3339), m.BackupTime.Format(time.RFC3339)), nil
}

// RemoveRestoreMarker removes what Restore left, once the hub has acted on it.
func RemoveRestoreMarker(dataDir string) error {
	err := os.Remove(filepath.Join(dataDir, markerName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the marker of a restore: %w", err)
	}
	return nil
}

// verifyBackup reads the whole backup and compares every sum.
func verifyBackup(o Options, file io.ReadSeeker) (*Report, error) {
	sums, report := map[string]string{}, &Report{Encrypted: len(o.Identities) > 0}
	checksum, err := readEntries(o, file, func(name string, r io.Reader) error {
		if name == manifestName {
			return json.NewDecoder(r).Decode(&report.Manifest)
		}
		sum := sha256.New()
		_, err := io.Copy(sum, r)
		sums[name] = hexSum(sum)
		return err
	})
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		err = &RefusedError{File: o.File, Reason: Damaged, Err: err}
	}
	if err != nil {
		return nil, err
	}
	report.Checksum = checksum
	if report.Format != formatVersion {
		return nil, fmt.Errorf("%s is no backup, or one of a format that Atoll %s does not support", o.File, o.Version)
	}
	if err := report.verifySums(sums); err != nil {
		return nil, &RefusedError{File: o.File, Reason: Damaged, Err: err}
	}
	if v := report.Version; len(v) > maxVersionBytes || phrase.EscapeLine(v) != v {
		return nil, &RefusedError{File: o.File, Reason: Damaged, Err: errors.New("its version is none of Atoll")}
	}
	return report, datadir.CheckVersion("the backup "+o.File, report.Version, o.Version)
}

func (m *Manifest) verifySums(sums map[string]string) error {
	want := keys.KeyFiles()
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

// extractEntries writes the entries of a verified backup, and fails where the file is not the one of
// the checksum any more.
func extractEntries(o Options, file io.ReadSeeker, dir *datadir.DataDir, checksum string) error {
	if err := os.Mkdir(dir.FilePath("keys"), 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	now, err := readEntries(o, file, func(name string, r io.Reader) error {
		if name == manifestName {
			return nil
		}
		out, err := os.OpenFile(dir.FilePath(filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer out.Close()
		if _, err := io.Copy(out, r); err != nil {
			return err
		}
		return out.Sync()
	})
	if err == nil && now != checksum {
		err = fmt.Errorf("%s was changed during the restore; restore again", o.File)
	}
	if err != nil {
		return fmt.Errorf("extract the backup: %w", err)
	}
	return datadir.SyncDirectory(dir.FilePath("keys"))
}

// readEntries reads a backup from its beginning to its end, and returns the sum of the file. The content
// that f gets is not authentic before readEntries returns.
func readEntries(o Options, file io.ReadSeeker, f func(name string, r io.Reader) error) (checksum string, err error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("read %s: %w", o.File, err)
	}
	whole := sha256.New()
	archive, err := openArchive(o.File, io.TeeReader(file, whole), o.Identities)
	if err != nil {
		return "", err
	}
	if err = forEachBackupEntry(archive, f); err == nil {
		_, err = io.Copy(io.Discard, archive)
	}
	return hexSum(whole), err
}

// forEachBackupEntry calls f for every entry, refusing those that are not a backup's.
func forEachBackupEntry(r io.Reader, f func(name string, r io.Reader) error) error {
	expected := map[string]bool{manifestName: true, snapshotName: true}
	for _, name := range keys.KeyFiles() {
		expected[keysPrefix+name] = true
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
		if !expected[header.Name] {
			return fmt.Errorf("unknown or repeated entry %q", header.Name)
		}
		delete(expected, header.Name)
		if err := checkEntry(header); err != nil {
			return fmt.Errorf("entry %s: %w", header.Name, err)
		}
		if err := f(header.Name, t); err != nil {
			return fmt.Errorf("entry %s: %w", header.Name, err)
		}
	}
}

// checkEntry refuses an entry of which a few bytes in the file could become many.
func checkEntry(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg {
		return errors.New("it is no regular file")
	}
	for record := range h.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return errors.New("it is a sparse file")
		}
	}
	if h.Name != snapshotName && h.Size > maxEntryBytes {
		return fmt.Errorf("it has %d bytes, and at most %d are allowed", h.Size, maxEntryBytes)
	}
	return nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
