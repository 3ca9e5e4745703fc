package ociartifact

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
)

// The sizes of layers are of the server. None of them makes the sum smaller than it is.
func TestSizesOfLayers(t *testing.T) {
	const most = 1000
	for name, c := range map[string]struct {
		sizes string
		want  error
	}{
		"one":              {`{"size": 1000}`, nil},
		"two":              {`{"size": 500}, {"size": 500}`, nil},
		"more":             {`{"size": 500}, {"size": 501}`, ErrTooLarge},
		"one that is more": {`{"size": 1001}`, ErrTooLarge},
		"the largest":      {fmt.Sprintf(`{"size": %d}`, math.MaxInt64), ErrTooLarge},
		"two halves":       {fmt.Sprintf(`{"size": %d}, {"size": %d}`, math.MaxInt64-1, math.MaxInt64-1), ErrTooLarge},
		"none":             {`{"size": -1}`, ErrTooLarge},
		"none that helps":  {`{"size": 1000}, {"size": -1000}, {"size": 1000}`, ErrTooLarge},
	} {
		_, err := ParseManifest([]byte(`{"layers": [`+c.sizes+`]}`), Bounds{ManifestBytes: 1 << 20, LayerBytes: most, Layers: 4})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// newSparseTar returns a tar with a file whose content is a hole of a size.
func newSparseTar(t *testing.T, size int64) []byte {
	t.Helper()
	record := func(key, value string) string {
		text := " " + key + "=" + value + "\n"
		n := len(text) + 1
		for len(fmt.Sprint(n))+len(text) != n {
			n++
		}
		return fmt.Sprint(n) + text
	}
	records := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.name", "a.yaml") + record("GNU.sparse.realsize", fmt.Sprint(size))
	sparse := make([]byte, 512) // the map: one fragment without bytes at the end of the hole
	copy(sparse, fmt.Sprintf("1\n%d\n0\n", size))
	var b bytes.Buffer
	for _, part := range []struct {
		kind byte
		text string
	}{{tar.TypeXHeader, records}, {tar.TypeReg, string(sparse)}} {
		h := make([]byte, 512)
		copy(h, "a.yaml")
		copy(h[100:], "0000600\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00        ", len(part.text), 0))
		h[156] = part.kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(h)
		b.WriteString(part.text)
		b.Write(make([]byte, (512-len(part.text)%512)%512))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

// A file with a hole has few bytes in the archive and many for its reader. All of them count.
func TestHolesOfFilesCount(t *testing.T) {
	read := int64(0)
	visit := func(_ Entry, from io.Reader) error {
		n, err := io.Copy(io.Discard, from)
		read += n
		return err
	}
	if err := NewUnpacker(1<<20).UnpackLayer(newSparseTar(t, 4096), "", visit); err != nil || read != 4096 {
		t.Fatalf("a small hole: %v, %d bytes", err, read)
	}
	read = 0
	if err := NewUnpacker(1<<20).UnpackLayer(newSparseTar(t, 64<<20), "", visit); !errors.Is(err, ErrTooLarge) || read > 1<<20 {
		t.Errorf("a large hole: %v, %d bytes", err, read)
	}
}

// Headers of entries are counted: a thousand empty files are not nothing.
func TestHeadersCount(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 1000 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	u := NewUnpacker(1 << 20)
	if err := u.UnpackLayer(b.Bytes(), "", func(Entry, io.Reader) error { return nil }); err != nil || u.CountBytes() < 1000*512 || u.CountBytes() > 1<<20 {
		t.Errorf("%v, %d bytes", err, u.CountBytes())
	}
}
