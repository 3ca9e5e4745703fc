package backup

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/apiserver/keys"
)

var quiet = slog.New(slog.DiscardHandler)

func testOptions(dataDir, file string) Options {
	return Options{DataDir: dataDir, File: file, Version: "v0.1.0", Logger: quiet}
}

// newDataDir makes a hub's data directory in which key is "saved".
func newDataDir(t *testing.T) (dir string, revision int64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "hub")
	if _, err := keys.LoadOrCreate(filepath.Join(dir, "keys"), true); err != nil {
		t.Fatal(err)
	}
	return dir, put(t, dir, "saved")
}

func put(t *testing.T, dir, value string) int64 {
	t.Helper()
	var revision int64
	withEtcd(t, dir, func(c *clientv3.Client) {
		resp, err := c.Put(t.Context(), "key", value)
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
	})
	return revision
}

func withEtcd(t *testing.T, dir string, f func(*clientv3.Client)) {
	t.Helper()
	s, err := etcd.Start(t.Context(), etcd.Options{Dir: filepath.Join(dir, "etcd"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	c, err := s.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f(c)
}

func TestSaveAndRestore(t *testing.T) {
	dir, revision := newDataDir(t)
	file := filepath.Join(t.TempDir(), "hub.tar")
	saved, err := SaveBackup(t.Context(), testOptions(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is not private: %v %v", info.Mode(), err)
	}
	if _, err := SaveBackup(t.Context(), testOptions(dir, file)); err == nil {
		t.Error("a backup replaced another")
	}
	later := put(t, dir, "later")

	target := filepath.Join(t.TempDir(), "restored")
	restored, err := RestoreDataDir(t.Context(), testOptions(target, file))
	if err != nil {
		t.Fatal(err)
	}
	if restored.Checksum != saved.Checksum || restored.Revision < revision {
		t.Errorf("restored %+v, saved %+v", restored, saved)
	}
	withEtcd(t, target, func(c *clientv3.Client) {
		got, err := c.Get(t.Context(), "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "saved" {
			t.Fatalf("got %v %v", got, err)
		}
		if got.Header.Revision <= later {
			t.Errorf("revision %d went back behind %d", got.Header.Revision, later)
		}
		watch := <-c.Watch(t.Context(), "key", clientv3.WithRev(later))
		if watch.CompactRevision == 0 {
			t.Errorf("a watch from before the restore does not get an order to list again: %v", watch)
		}
	})
	old, err := keys.LoadOrCreate(filepath.Join(dir, "keys"), false)
	if err != nil {
		t.Fatal(err)
	}
	set, err := keys.LoadOrCreate(filepath.Join(target, "keys"), false)
	if err != nil || set.KeyFingerprint() != old.KeyFingerprint() {
		t.Errorf("the key set is another: %v", err)
	}
	marker, err := ReadRestoreMarker(target)
	if err != nil || marker == nil || marker.Source != saved.Checksum {
		t.Fatalf("marker %v %v", marker, err)
	}
	if err := RemoveRestoreMarker(target); err != nil {
		t.Fatal(err)
	}
	if marker, err := ReadRestoreMarker(target); err != nil || marker != nil {
		t.Errorf("the marker stays: %v %v", marker, err)
	}
	if _, err := RestoreDataDir(t.Context(), testOptions(target, file)); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("restored over a data directory: %v", err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	dir, _ := newDataDir(t)
	file := filepath.Join(t.TempDir(), "hub.tar")
	if _, err := SaveBackup(t.Context(), testOptions(dir, file)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		content []byte
		version string
		want    string
	}{
		"flipped bit":   {flipped, "v0.1.0", "damaged"},
		"cut short":     {whole[:len(whole)*2/3], "v0.1.0", "damaged"},
		"not a backup":  {[]byte("hello"), "v0.1.0", "no backup"},
		"empty":         {nil, "v0.1.0", "no backup"},
		"newer version": {whole, "v0.0.9", "run v0.1.0 or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "in.tar"))
			o.Version = c.version
			if err := os.WriteFile(o.File, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := RestoreDataDir(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			if _, err := os.Stat(o.DataDir); err == nil {
				t.Error("something was made of it")
			}
		})
	}
}

func TestUnfinishedRestoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	d, err := datadir.OpenEmpty(dir, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, err := datadir.OpenLocked(dir, "v0.1.0"); err == nil || !strings.Contains(err.Error(), "not finished") {
		t.Errorf("opened: %v", err)
	}
}

func TestExternalEtcdSavesKeysOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := keys.LoadOrCreate(filepath.Join(dir, "keys"), true); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hub.tar")
	report, err := SaveBackup(t.Context(), testOptions(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	if !report.KeysOnly || report.Note == "" {
		t.Errorf("report %+v", report)
	}
	target := t.TempDir()
	if _, err := RestoreDataDir(t.Context(), testOptions(target, file)); err != nil {
		t.Fatal(err)
	}
	if marker, err := ReadRestoreMarker(target); err != nil || marker != nil {
		t.Errorf("keys alone cut no history: %v %v", marker, err)
	}
	var missing *keys.MissingError
	if err := os.Remove(filepath.Join(target, "keys", "hub.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.LoadOrCreate(filepath.Join(target, "keys"), false); !errors.As(err, &missing) {
		t.Errorf("a key that data depends on was created again: %v", err)
	}
}
