package fetch

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"helm.sh/helm/v4/pkg/provenance"
	"helm.sh/helm/v4/pkg/registry"
	repo "helm.sh/helm/v4/pkg/repo/v1"

	"atoll.dev/atoll/internal/sources/chartstest"
	"atoll.dev/atoll/internal/sources/signature"
)

// helmKey is a key of OpenPGP by which Helm's own code signs; the zero value signs nothing.
type helmKey struct {
	entity *openpgp.Entity
	public string
}

func newHelmKey(t *testing.T) helmKey {
	t.Helper()
	e, err := openpgp.NewEntity("Release", "", "release@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Serialize(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return helmKey{e, out.String()}
}

// provenanceText is a provenance file; empty: there is none.
type provenanceText string

// pushOptions returns how Helm pushes the file.
func (p provenanceText) pushOptions() []registry.PushOption {
	if p == "" {
		return nil
	}
	return []registry.PushOption{registry.PushOptProvData([]byte(p))}
}

// signArchive returns the provenance file of an archive.
func (k helmKey) signArchive(t *testing.T, archive []byte, name string) provenanceText {
	t.Helper()
	if k.entity == nil {
		return ""
	}
	text, err := (&provenance.Signatory{Entity: k.entity}).ClearSign(archive, name, []byte("apiVersion: v2\nname: shop\n"))
	if err != nil {
		t.Fatal(err)
	}
	return provenanceText(text)
}

// A chart of an index passes with a provenance file beside its archive, which a trusted key signed for these very bytes.
func TestProvenancesOfAnIndex(t *testing.T) {
	key, other := newHelmKey(t), newHelmKey(t)
	archive := chartstest.NewChart(t, "shop", "1.0.0")
	good := string(key.signArchive(t, archive, "shop-1.0.0.tgz"))
	s := newChartServer(t, map[string][]byte{"shop-1.0.0.tgz": archive})
	read := func(keys string, mode signature.Mode) Content {
		t.Helper()
		r := s.newRequest(wantChart("shop@*"))
		r.Verify = &Verification{Mode: mode, Keys: map[string][]byte{"release.asc": []byte(keys)}}
		return fetchOne(t, r)
	}
	file := filepath.Join(s.dir, "shop-1.0.0.tgz.prov")
	for _, step := range []struct {
		name, text, keys string
		want             string
	}{
		{"none", "", key.public, unsigned},
		{"of Helm", good, key.public, "1.0.0"},
		{"of Helm by two keys", good, other.public + key.public, "1.0.0"},
		{"another key", good, other.public, untrusted},
		{"another archive", string(key.signArchive(t, chartstest.NewChart(t, "shop", "1.0.1"), "shop-1.0.0.tgz")), key.public, invalidSignature},
		{"a changed one", strings.Replace(good, "shop", "hush", 1), key.public, invalidSignature},
		{"a page", "<html>hush", key.public, invalidSignature},
		{"a large one", good + strings.Repeat("hush", signature.MaxProvenanceBytes/4), key.public, invalidSignature},
		{"the good one again", good, key.public, "1.0.0"},
	} {
		os.Remove(file) // it may not be there
		if step.text != "" {
			if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := read(step.keys, signature.ModeProvenance)
		if got := versionOf(c); got != step.want || c.Commit == "" || (c.Signer != "") != (got == "1.0.0") || c.Failure != nil && strings.Contains(c.Failure.Message, "hush") {
			t.Errorf("%s: %s by %q (%+v), want %s", step.name, got, c.Signer, c.Failure, step.want)
		}
	}
	if got := versionOf(read(key.public, signature.ModeArtifact)); got != "failure InvalidField" {
		t.Errorf("an artifact of an index: %s", got)
	}
	// The provenance lies beside its archive, whatever address the index states. One that cannot be read now is not a missing one.
	s.writeIndex(t, func(x *repo.IndexFile) { x.Entries["shop"][0].URLs = []string{"a%2Fb/shop-1.0.0.tgz?c=d"} })
	files := http.FileServer(http.Dir(s.dir))
	status := 0
	s.wrap = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isProvenance := strings.HasSuffix(r.URL.Path, ".prov")
		if isProvenance && status != 0 {
			w.WriteHeader(status)
			return
		}
		if r.URL.Path != "/index.yaml" && (r.URL.RawQuery != "c=d" || !strings.HasPrefix(r.URL.EscapedPath(), "/a%2Fb/")) {
			http.NotFound(w, r)
			return
		}
		r.URL.Path, r.URL.RawPath = "/"+filepath.Base(r.URL.Path), ""
		files.ServeHTTP(w, r)
	})
	if got := versionOf(read(key.public, signature.ModeProvenance)); got != "1.0.0" {
		t.Errorf("an address with a query: %s", got)
	}
	status = http.StatusBadGateway
	if got := versionOf(read(key.public, signature.ModeProvenance)); got != "failure RepositoryUnreachable" {
		t.Errorf("a server that fails: %s", got)
	}
}
