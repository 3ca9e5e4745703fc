package fetch

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/chartstest"
	"atoll.dev/atoll/internal/sources/cosigntest"
	"atoll.dev/atoll/internal/sources/signature"
)

const unsigned, invalidSignature, untrusted = "failure SignatureMissing", "failure SignatureInvalid", "failure SignerUntrusted"

// changedRegistry is a registry whose answers a test changes, and which notes what is read.
type changedRegistry struct {
	*httptest.Server
	ca string
	mu sync.Mutex
	// change answers a request in the place of the registry; false: the registry answers it.
	change func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
	read   []string
}

func newChangedRegistry(t *testing.T) *changedRegistry {
	t.Helper()
	c := &changedRegistry{}
	c.Server, c.ca = chartstest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			c.read = append(c.read, r.Method+" "+r.URL.Path)
			change := c.change
			c.mu.Unlock()
			if change == nil || !change(w, r, next) {
				next.ServeHTTP(w, r)
			}
		})
	})
	return c
}

// setChange changes the answers from now on, and forgets what was read.
func (c *changedRegistry) setChange(change func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change, c.read = change, nil
}

// countReads returns how many requests had a text in their path since the last change.
func (c *changedRegistry) countReads(text string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, path := range c.read {
		if strings.Contains(path, text) {
			n++
		}
	}
	return n
}

// openFiles returns the repository of artifacts of files.
func (c *changedRegistry) openFiles(t *testing.T) cosigntest.Repository {
	t.Helper()
	return cosigntest.OpenRepository(t, c.Server, "shop/files", chartstest.Username, chartstest.Password)
}

// readSigned reads an artifact that a key must have signed.
func (c *changedRegistry) readSigned(t *testing.T, ref string, keys ...string) Content {
	t.Helper()
	files := map[string][]byte{}
	for i, key := range keys {
		files[fmt.Sprint(i)] = []byte(key)
	}
	return fetchOne(t, Request{
		Type: TypeOCI, URL: strings.Replace(c.URL, "https://", "oci://", 1) + "/shop/files", Username: chartstest.Username, Password: chartstest.Password, CABundle: c.ca,
		Wants: []Want{{ID: "s", Ref: ref}}, Verify: &Verification{Mode: signature.ModeArtifact, Keys: files},
	})
}

// expectContent compares what a fetch returned. Content has a signer, and a refusal has the revision and no object.
func expectContent(t *testing.T, what string, c Content, want string) {
	t.Helper()
	if got := describe(c); got != want {
		t.Errorf("%s: %s (%+v), want %s", what, got, c.Failure, want)
	}
	if passes := !strings.HasPrefix(want, "failure"); passes != (c.Signer != "") || passes != (len(c.Objects) > 0) || c.Commit == "" || c.Failure != nil && strings.Contains(c.Failure.Message, "hush") {
		t.Errorf("%s: %+v", what, c)
	}
}

// An artifact passes with a signature of a trusted key over the digest of its manifest, in both places and forms of cosign.
func TestSignedArtifacts(t *testing.T) {
	key, other := cosigntest.NewKey(t), cosigntest.NewKey(t)
	c := newChangedRegistry(t)
	of := c.openFiles(t)
	push := func(tag string) string {
		return pushArtifact(t, c.Server, tag, morning, artifactLayer{tag + ".yaml", []byte(configMap)})
	}
	simple := func(k cosigntest.Key, digest string) cosigntest.Layer {
		return k.SignPayload(t, cosigntest.NewPayload(digest))
	}
	bundle := func(k cosigntest.Key, digest, predicate string) cosigntest.Layer {
		return k.SignEnvelope(t, cosigntest.StatementType, cosigntest.NewStatement(digest, predicate))
	}
	const scan = "https://slsa.dev/provenance/v1"
	wants := map[string]string{"unsigned": unsigned}
	digests := map[string]string{"unsigned": push("unsigned")}
	sign := func(tag, want string, signatures func(digest string)) {
		digests[tag], wants[tag] = push(tag), want
		signatures(digests[tag])
	}
	referrer := func(digest, predicate string, layer cosigntest.Layer) {
		of.PushReferrer(t, digest, cosigntest.BundleType, predicate, layer)
	}
	sign("simple", "simple.yaml:1", func(d string) { of.PushSignatures(t, d, simple(key, d)) })
	sign("second", "second.yaml:1", func(d string) { of.PushSignatures(t, d, simple(other, d), simple(key, d)) })
	sign("bundle", "bundle.yaml:1", func(d string) {
		referrer(d, cosigntest.SignPredicate, bundle(key, d, cosigntest.SignPredicate))
	})
	sign("unnamed", "unnamed.yaml:1", func(d string) { referrer(d, "", bundle(key, d, cosigntest.SignPredicate)) })
	sign("both", "both.yaml:1", func(d string) {
		of.PushSignatures(t, d, simple(other, d))
		referrer(d, scan, bundle(key, d, scan))
		referrer(d, cosigntest.SignPredicate, bundle(key, d, cosigntest.SignPredicate))
	})
	sign("referring", "referring.yaml:1", func(d string) {
		of.PushReferrer(t, d, "application/vnd.dev.cosign.artifact.sig.v1+json", "", simple(key, d))
	})
	sign("other", untrusted, func(d string) { of.PushSignatures(t, d, simple(other, d)) })
	sign("replayed", invalidSignature, func(d string) { of.PushSignatures(t, d, simple(key, digests["simple"])) })
	sign("replayed-bundle", invalidSignature, func(d string) {
		referrer(d, "", bundle(key, digests["simple"], cosigntest.SignPredicate))
	})
	sign("scanned", unsigned, func(d string) { referrer(d, scan, bundle(key, d, scan)) })
	sign("scan-without-a-name", unsigned, func(d string) { referrer(d, "", bundle(key, d, scan)) })
	sign("no-signature-in-it", unsigned, func(d string) {
		of.PushSignatures(t, d, cosigntest.Layer{MediaType: "text/plain", Content: []byte("hush")})
	})
	for tag, want := range wants {
		expectContent(t, tag, c.readSigned(t, "tag@"+tag, key.Public), want)
		expectContent(t, "the digest of "+tag, c.readSigned(t, "digest@"+digests[tag], key.Public), want)
	}
	content := c.readSigned(t, "tag@simple", other.Public, key.Public)
	if content.Commit != "simple@"+digests["simple"] || !strings.HasPrefix(content.Signer, "ECDSA sha256:") {
		t.Errorf("%+v", content)
	}
	// Other keys are another question, also for content that was seen.
	expectContent(t, "the key is no longer trusted", c.readSigned(t, "tag@simple", other.Public), untrusted)
	expectContent(t, "the other key is trusted", c.readSigned(t, "tag@other", other.Public), "other.yaml:1")
	// An artifact that is not signed is not read.
	c.setChange(nil)
	expectContent(t, "unsigned", c.readSigned(t, "tag@unsigned", key.Public), unsigned)
	if c.countReads("/blobs/") != 0 || c.countReads("GET /v2/shop/files/manifests/"+digests["unsigned"]) != 0 {
		t.Errorf("an unsigned artifact is read: %v", c.read)
	}
	// It passes once it is signed.
	of.PushSignatures(t, digests["unsigned"], simple(key, digests["unsigned"]))
	expectContent(t, "signed later", c.readSigned(t, "tag@unsigned", key.Public), "unsigned.yaml:1")
}

// The verified digest is read: neither a tag that moves nor a registry that sends other bytes changes it.
func TestTheVerifiedDigestIsRead(t *testing.T) {
	key := cosigntest.NewKey(t)
	c := newChangedRegistry(t)
	of := c.openFiles(t)
	push := func(tag, name string) string {
		return pushArtifact(t, c.Server, tag, morning, artifactLayer{name + ".yaml", []byte(configMap)})
	}
	signed := push("moving", "signed")
	evil := push("evil", "evil!!")
	of.PushSignatures(t, signed, key.SignPayload(t, cosigntest.NewPayload(signed)))
	replaced := func(text, by string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/manifests/"+signed) {
				return false
			}
			record := httptest.NewRecorder()
			next.ServeHTTP(record, r)
			for name, values := range record.Header() {
				w.Header()[name] = values
			}
			_, _ = w.Write(bytes.ReplaceAll(record.Body.Bytes(), []byte(text), []byte(by))) // the client notes an answer that is cut
			return true
		}
	}
	// The tag is moved after its only resolution.
	resolved := 0
	c.setChange(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/moving") || r.Header.Get("Authorization") == "" {
			return false
		}
		if resolved++; resolved > 1 {
			r.URL.Path = strings.Replace(r.URL.Path, "moving", "evil", 1)
		}
		return false
	})
	content := c.readSigned(t, "tag@moving", key.Public)
	expectContent(t, "a tag that moves", content, "signed.yaml:1")
	if content.Commit != "moving@"+signed || resolved != 1 {
		t.Errorf("%s, resolved %d times", content.Commit, resolved)
	}
	content = c.readSigned(t, "tag@moving", key.Public)
	expectContent(t, "the tag afterwards", content, unsigned)
	if content.Commit != "moving@"+evil {
		t.Errorf("the tag did not move: %s", content.Commit)
	}
	c.setChange(replaced("signed.yaml", "hushed.yaml"))
	expectContent(t, "a changed manifest", c.readSigned(t, "tag@moving", key.Public), "failure DigestMismatch")
	c.setChange(replaced("hush", "hush"))
	expectContent(t, "the same manifest", c.readSigned(t, "tag@moving", key.Public), "signed.yaml:1")
}

// Signatures that a registry states are bounded before they are read, and one that is damaged leaves the others theirs.
func TestHostileSignatures(t *testing.T) {
	key, other := cosigntest.NewKey(t), cosigntest.NewKey(t)
	c := newChangedRegistry(t)
	of := c.openFiles(t)
	digest := pushArtifact(t, c.Server, "a", morning, artifactLayer{"a.yaml", []byte(configMap)})
	good := key.SignPayload(t, cosigntest.NewPayload(digest))
	huge := cosigntest.Layer{MediaType: cosigntest.SimpleType, Content: bytes.Repeat([]byte("hush"), 20<<10), Annotations: good.Annotations}
	many := []cosigntest.Layer{}
	for i := range signature.MaxSignatures {
		many = append(many, other.SignPayload(t, fmt.Appendf(nil, `{"hush": %d}`, i)))
	}
	pathOf := func(l cosigntest.Layer) string { return fmt.Sprintf("/blobs/sha256:%x", hashOf(l.Content)) }
	missing := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, pathOf(many[0])) {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	}
	broken := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, pathOf(good)) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(good.Content)))
		_, _ = w.Write(bytes.Repeat([]byte("x"), len(good.Content)))
		return true
	}
	away := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	for _, step := range []struct {
		name   string
		layers []cosigntest.Layer
		change func(http.ResponseWriter, *http.Request, http.Handler) bool
		want   string
	}{
		{"a large payload", []cosigntest.Layer{huge}, nil, invalidSignature},
		{"one that is missing", []cosigntest.Layer{many[0]}, missing, invalidSignature},
		{"one that is missing, and a good one", []cosigntest.Layer{many[0], huge, good}, missing, "a.yaml:1"},
		{"other bytes than its digest", []cosigntest.Layer{good}, broken, invalidSignature},
		{"too many", slices.Concat(many, []cosigntest.Layer{good}), nil, untrusted},
		{"as many as are read", slices.Concat(many[1:], []cosigntest.Layer{good}), nil, "a.yaml:1"},
		{"a registry that is away", []cosigntest.Layer{good}, away, "failure RepositoryUnreachable"},
		{"the good one", []cosigntest.Layer{good}, nil, "a.yaml:1"},
	} {
		c.setChange(nil)
		of.PushSignatures(t, digest, step.layers...)
		c.setChange(step.change)
		expectContent(t, step.name, c.readSigned(t, "tag@a", key.Public), step.want)
		if n := c.countReads("GET /v2/shop/files" + pathOf(huge)); n > 0 {
			t.Errorf("%s: a payload beyond its bound is read", step.name)
		}
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ofSSH, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	// No keys, and keys of another kind, let nothing pass.
	for name, keys := range map[string][]string{"no keys": nil, "a key of SSH": {string(ssh.MarshalAuthorizedKey(ofSSH))}, "no key": {"hush"}} {
		if content := c.readSigned(t, "tag@a", keys...); content.Failure == nil || content.Failure.Reason != atoll.ReasonTrustedKeysMissing || strings.Contains(content.Failure.Message, "hush") {
			t.Errorf("%s: %+v", name, content)
		}
	}
}

// The API of referrers is read within its bounds, where a registry has it. A registry without it has the list under a tag.
func TestReferrersOfTheAPI(t *testing.T) {
	key := cosigntest.NewKey(t)
	c := newChangedRegistry(t)
	of := c.openFiles(t)
	digest := pushArtifact(t, c.Server, "a", morning, artifactLayer{"a.yaml", []byte(configMap)})
	of.PushReferrer(t, digest, cosigntest.BundleType, cosigntest.SignPredicate, key.SignEnvelope(t, cosigntest.StatementType, cosigntest.NewStatement(digest, cosigntest.SignPredicate)))
	page := newHostileServer(t)
	const index = "application/vnd.oci.image.index.v1+json"
	asAPI := func(answer func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if !strings.Contains(r.URL.Path, "/referrers/") {
				return false
			}
			answer(w, r, next)
			return true
		}
	}
	for name, step := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request, next http.Handler)
		want   string
	}{
		"the list": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.URL.Path = strings.Replace(strings.Replace(r.URL.Path, "/referrers/", "/manifests/", 1), ":", "-", 1)
			r.Header.Set("Accept", index)
			next.ServeHTTP(w, r)
		}, "a.yaml:1"},
		"an empty list": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", index)
			_, _ = w.Write([]byte(`{"manifests": []}`))
		}, unsigned},
		"pages without an end": {func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", index)
			w.Header().Set("Link", "<"+r.URL.Path+`?n=1>; rel="next"`)
			_, _ = w.Write([]byte(`{"manifests": []}`))
		}, invalidSignature},
		"a large list": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", index)
			_, _ = w.Write([]byte(`{"manifests": [` + strings.Repeat(" ", maxReferrersBytes) + `]}`))
		}, "failure RepositoryUnreachable"},
		"a redirect to a page": {func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, page.URL, http.StatusSeeOther)
		}, "a.yaml:1"},
		"another method": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}, "a.yaml:1"},
		"an error": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusBadGateway) }, "failure RepositoryUnreachable"},
	} {
		c.setChange(asAPI(step.answer))
		expectContent(t, name, c.readSigned(t, "tag@a", key.Public), step.want)
		if n := c.countReads("/referrers/"); n == 0 || n > maxReferrerPages {
			t.Errorf("%s: %d pages are read", name, n)
		}
	}
	if got := page.takeRequests(); got != "" {
		t.Errorf("the other host is asked %q", got)
	}
}

// A chart of a registry is verified as an artifact, or by its provenance.
func TestSignedChartsOfARegistry(t *testing.T) {
	key := cosigntest.NewKey(t)
	helm, otherHelm := newHelmKey(t), newHelmKey(t)
	c := newChangedRegistry(t)
	for version, by := range map[string]helmKey{"1.0.0": {}, "1.1.0": helm, "1.2.0": otherHelm, "1.3.0": helm} {
		archive := chartstest.NewChart(t, "shop", version)
		provenance := by.signArchive(t, archive, "shop-"+version+".tgz")
		if version == "1.3.0" {
			provenance = helm.signArchive(t, chartstest.NewChart(t, "shop", "1.1.0"), "shop-1.3.0.tgz")
		}
		chartstest.PushChart(t, c.Server, archive, "shop", version, provenance.pushOptions()...)
	}
	of := cosigntest.OpenRepository(t, c.Server, "charts/shop", chartstest.Username, chartstest.Password)
	digest := of.ResolveTag(t, "1.0.0")
	of.PushSignatures(t, digest, key.SignPayload(t, cosigntest.NewPayload(digest)))
	for _, step := range []struct {
		mode    signature.Mode
		version string
		want    string
		signer  string
	}{
		{signature.ModeArtifact, "1.0.0", "1.0.0", "ECDSA sha256:"}, {signature.ModeArtifact, "~1.0", "1.0.0", "ECDSA sha256:"}, {signature.ModeArtifact, "1.1.0", unsigned, ""},
		{signature.ModeProvenance, "1.1.0", "1.1.0", "OpenPGP "}, {signature.ModeProvenance, "1.0.0", unsigned, ""}, {signature.ModeProvenance, "1.2.0", untrusted, ""}, {signature.ModeProvenance, "1.3.0", invalidSignature, ""},
		{signature.ModeCommit, "1.0.0", "failure InvalidField", ""},
	} {
		r := Request{
			Type: TypeHelm, URL: strings.Replace(c.URL, "https://", "oci://", 1) + "/charts", Username: chartstest.Username, Password: chartstest.Password, CABundle: c.ca,
			Wants: []Want{wantChart("shop@" + step.version)}, Verify: &Verification{Mode: step.mode, Keys: map[string][]byte{"a": []byte(key.Public), "b": []byte(helm.public)}},
		}
		content := fetchOne(t, r)
		if got := versionOf(content); got != step.want || !strings.HasPrefix(content.Signer, step.signer) || (step.signer == "") != (content.Signer == "") {
			t.Errorf("%s of %s: %s by %q (%+v), want %s by %s", step.mode, step.version, got, content.Signer, content.Failure, step.want, step.signer)
		}
	}
}
