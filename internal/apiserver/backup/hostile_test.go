package backup

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"atoll.dev/atoll/internal/apiserver/keys"
)

// endlessReader repeats a text, and counts what is read of it.
type endlessReader struct {
	text string
	read int
}

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[(e.read+i)%len(e.text)]
	}
	e.read += len(p)
	return len(p), nil
}

func TestEndlessHeaderIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"line":    "A",
		"stanzas": "-> X25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
		"body":    strings.Repeat("A", 64) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			endless := &endlessReader{text: text}
			begin := "age-encryption.org/v1\n"
			if name != "stanzas" {
				begin += "-> X25519 "
			}
			if name == "body" {
				begin += "A\n"
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := openArchive("in.age", io.MultiReader(strings.NewReader(begin), endless), []age.Identity{newIdentity(t)})
			runtime.ReadMemStats(&after)
			if err == nil || endless.read > 3<<20 {
				t.Errorf("%d bytes of the header were read: %v", endless.read, err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
				t.Errorf("the header took %d bytes of memory", allocated)
			}
		})
	}
}

// rawEntry returns a tar entry whose header says kind and size, which the writer of the library
// refuses to write.
func rawEntry(name string, kind byte, size int, content string) []byte {
	block := make([]byte, 512)
	copy(block, name)
	copy(block[100:], "0000600\x000000000\x000000000\x00")
	copy(block[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", size))
	block[156] = kind
	copy(block[257:], "ustar\x0000")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	padding := make([]byte, (512-len(content)%512)%512)
	return slices.Concat(block, []byte(content), padding)
}

func TestHostileEntriesAreRefused(t *testing.T) {
	record := func(key, value string) string {
		body := " " + key + "=" + value + "\n"
		return fmt.Sprint(len(body)+2) + body // all of these have two digits
	}
	sparse := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") +
		record("GNU.sparse.name", snapshotName) + record("GNU.sparse.realsize", fmt.Sprint(int64(1)<<50))
	data := "1\n0\n1\n" + strings.Repeat("\x00", 506) + "x"
	key := keysPrefix + keys.KeyFiles()[0]
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"huge sparse snapshot": {slices.Concat(rawEntry("x", tar.TypeXHeader, len(sparse), sparse), rawEntry(snapshotName, tar.TypeReg, len(data), data)), "sparse"},
		"huge key":             {rawEntry(key, tar.TypeReg, maxEntryBytes+1, strings.Repeat("k", maxEntryBytes+1)), "at most"},
		"huge manifest":        {rawEntry(manifestName, tar.TypeReg, maxEntryBytes+1, strings.Repeat(" ", maxEntryBytes+1)), "at most"},
		"entry twice":          {slices.Concat(rawEntry(key, tar.TypeReg, 1, "k"), rawEntry(key, tar.TypeReg, 1, "l")), "repeated"},
		"link":                 {rawEntry(key, tar.TypeSymlink, 0, ""), "no regular file"},
		"other directory":      {rawEntry("keys/../../hub.key", tar.TypeReg, 1, "k"), "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "in.tar"))
			if err := os.WriteFile(o.File, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := RestoreDataDir(t.Context(), o)
			assertRefused(t, o, err, Damaged)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
		})
	}
}

func TestVersionForATerminalIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := keys.LoadOrCreate(filepath.Join(dir, "keys"), true); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v0.1.0\x1b[2J", "v0.1.0-" + strings.Repeat("x", maxVersionBytes)} {
		o := testOptions(dir, filepath.Join(t.TempDir(), "hub.tar"))
		o.Version = version
		if _, err := SaveBackup(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		o = testOptions(filepath.Join(t.TempDir(), "target"), o.File)
		_, err := RestoreDataDir(t.Context(), o)
		assertRefused(t, o, err, Damaged)
	}
}
