package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// files are what `make console` builds of web/, each compressed.
//
//go:embed assets/*.gz
var files embed.FS

// indexPath is the page; every view of the console is it.
const indexPath = rootPath + "index.html"

// views are the first parts of the paths that the page shows itself.
var views = map[string]bool{"": true, "fleet": true, "clusters": true, "applications": true, "logs": true, "pods": true, "terminal": true, "waiting": true}

// contentTypes by the ending of a file's name.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// asset is one file of the console, compressed and as it is. Both are made once: no request takes memory for them.
type asset struct {
	compressed  []byte
	plain       []byte
	etag        string
	contentType string
	// immutable: the name has the hash of the content, so that a browser never requests it again.
	immutable bool
}

// readAssets returns the embedded files by their paths.
func readAssets() (map[string]asset, error) {
	entries, err := files.ReadDir("assets")
	if err != nil {
		return nil, fmt.Errorf("list the files of the console: %w", err)
	}
	out := map[string]asset{}
	for _, e := range entries {
		compressed, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read a file of the console: %w", err)
		}
		name := strings.TrimSuffix(e.Name(), ".gz")
		plain, err := decompressContent(compressed)
		if err != nil {
			return nil, fmt.Errorf("decompress %s of the console: %w", name, err)
		}
		out[rootPath+name] = asset{compressed: compressed, plain: plain, etag: hashContent(compressed), contentType: contentTypes[path.Ext(name)], immutable: strings.Contains(name, "-")}
	}
	return out, nil
}

// newAsset compresses a content.
func newAsset(content []byte, contentType string, immutable bool) (asset, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		return asset{}, err
	}
	if err := z.Close(); err != nil {
		return asset{}, err
	}
	return asset{compressed: b.Bytes(), plain: content, etag: hashContent(b.Bytes()), contentType: contentType, immutable: immutable}, nil
}

func decompressContent(compressed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func hashContent(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// serveAsset serves a file, or the page where the path is one of its views.
func (c *console) serveAsset(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the console's files are only read")
		return
	}
	a, ok := c.assets[r.URL.Path]
	if !ok {
		view, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, rootPath), "/")
		if !views[view] {
			writeRefusal(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the console has no such page")
			return
		}
		a = c.assets[indexPath]
	}
	a.writeTo(w, r)
}

// writeTo answers with the file, compressed where the client takes gzip. Ranges are not served.
func (a asset) writeTo(w http.ResponseWriter, r *http.Request) {
	h, zipped := w.Header(), acceptsGzip(r.Header.Values("Accept-Encoding"))
	etag := `"` + a.etag + `"`
	if !zipped {
		etag = `"` + a.etag + `-plain"`
	}
	h.Set("ETag", etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if a.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if matchesETag(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.plain)))
	if zipped {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(a.compressed)))
	}
	w.WriteHeader(http.StatusOK)
	switch {
	case r.Method == http.MethodHead:
	case zipped:
		_, _ = w.Write(a.compressed) // the client may have closed the connection
	default:
		_, _ = w.Write(a.plain)
	}
}

// acceptsGzip reports whether the header allows gzip: it is named, or *, and not with a weight of 0.
func acceptsGzip(values []string) bool {
	accepts := false
	for _, v := range values {
		for _, one := range strings.Split(v, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(one), ";")
			name = strings.ToLower(strings.TrimSpace(name))
			q, weighted := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			number, err := strconv.ParseFloat(q, 64)
			allowed := !weighted || err == nil && number > 0
			if name == "gzip" {
				return allowed
			}
			if name == "*" {
				accepts = allowed
			}
		}
	}
	return accepts
}

func matchesETag(values []string, etag string) bool {
	for _, v := range values {
		for _, one := range strings.Split(v, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == etag {
				return true
			}
		}
	}
	return false
}
