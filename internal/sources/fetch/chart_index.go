package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/signature"
)

// chartIndex is a Helm repository over HTTP: an index.yaml that names archives. Its revisions are the version and the
// digest of an archive. In the hub's own process the index is compared, and not parsed.
type chartIndex struct {
	through    *originTransport
	base       *url.URL
	user, pass string
	inHub      bool
	seen       Checkpoint
	found      Checkpoint
	index      *indexText
	unpacked   unpackedBytes
	// verifier verifies provenances; nil: nothing must be signed.
	verifier *contentVerifier
	// archives that were read to identify them, and entries, by revision.
	archives map[string][]byte
	// sent are the bytes of all archives.
	sent          int64
	entryOf       map[string]indexEntry
	isUnchanged   bool
	indexLocation *url.URL
}

// openChartIndex prepares the connection.
func openChartIndex(u *url.URL, r Request, of place) (repository, error) {
	verifier, err := newVerifier(r, of, func(m signature.Mode) bool { return m == signature.ModeProvenance })
	if err != nil {
		return nil, err
	}
	most := int64(maxIndexBytes)
	if !of.inHub {
		most += maxSentCharts
	}
	through, err := newOriginTransport(u, r, most+1, errTooLarge)
	if err != nil {
		return nil, err
	}
	base := u.JoinPath("/")
	return &chartIndex{
		through: through, base: base, indexLocation: base.JoinPath("index.yaml"), user: r.Username, pass: r.Password, inHub: of.inHub, seen: of.seen, verifier: verifier,
		archives: map[string][]byte{}, entryOf: map[string]indexEntry{},
	}, nil
}

func (x *chartIndex) closeIdle() { x.through.closeIdle() }

// readCheckpoint returns what the index was, with the revisions that refs had in it.
func (x *chartIndex) readCheckpoint() *Checkpoint {
	if x.found.Digest == "" {
		return nil
	}
	return &x.found
}

// get sends a request, with credentials where it goes to the Repository's own server.
func (x *chartIndex) get(ctx context.Context, at *url.URL, mayMove bool, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, newFailure(atoll.ReasonRepositoryUnreachable, "the index has an address that is no URL")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if x.user+x.pass != "" && x.through.isOrigin(at) {
		r.SetBasicAuth(x.user, x.pass)
	}
	resp, err := x.through.newClient(func(*http.Request) bool { return mayMove }).Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotModified && x.inHub {
		return resp, nil
	}
	resp.Body.Close()
	return nil, statusError(resp.StatusCode)
}

// readRefs reads the index. The hub's own process reads no further than to find out whether a child has seen it.
func (x *chartIndex) readRefs(ctx context.Context) error {
	if x.inHub && x.seen.Digest == "" {
		return errUnknownHere
	}
	resp, err := x.get(ctx, x.indexLocation, false, x.newConditions())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		x.isUnchanged = true
		return nil
	}
	sum := sha256.New()
	from := io.TeeReader(io.LimitReader(resp.Body, maxIndexBytes+1), sum)
	if x.inHub {
		if _, err := io.Copy(io.Discard, from); err != nil {
			return err
		}
		if x.isUnchanged = hex.EncodeToString(sum.Sum(nil)) == x.seen.Digest; x.isUnchanged {
			x.found = newCheckpoint(resp.Header, x.seen.Digest, x.seen.Revisions)
		}
		return nil
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if len(text) > maxIndexBytes {
		return newFailure(atoll.ReasonRepositoryUnreachable, "index.yaml of the repository has more than %d bytes; use a repository with fewer versions, or an OCI registry", maxIndexBytes)
	}
	if x.index, err = readIndex(text); err != nil {
		return err
	}
	x.found = newCheckpoint(resp.Header, hex.EncodeToString(sum.Sum(nil)), map[string]string{})
	return nil
}

// newConditions returns the headers of a request for an index that changed.
func (x *chartIndex) newConditions() http.Header {
	if !x.inHub {
		return nil
	}
	h := http.Header{}
	if x.seen.ETag != "" {
		h.Set("If-None-Match", x.seen.ETag)
	} else if x.seen.LastModified != "" {
		h.Set("If-Modified-Since", x.seen.LastModified)
	}
	return h
}

// newCheckpoint returns what an answer states of an index. A time has whole seconds, so it identifies an index that is
// older than the answer alone.
func newCheckpoint(h http.Header, digest string, revisions map[string]string) Checkpoint {
	c := Checkpoint{ETag: boundHeader(h.Get("ETag")), Digest: digest, Revisions: revisions}
	changed, err := http.ParseTime(h.Get("Last-Modified"))
	answered, failed := http.ParseTime(h.Get("Date"))
	if err == nil && failed == nil && answered.Sub(changed) >= settledIndex {
		c.LastModified = boundHeader(h.Get("Last-Modified"))
	}
	return c
}

// settledIndex is the age from which on an index is identified by its time.
const settledIndex = 5 * time.Second

// boundHeader returns a header that the hub notes; empty for a long one.
func boundHeader(text string) string {
	if len(text) > 256 {
		return ""
	}
	return text
}

// resolveRef returns the version of a chart in the index that a ref takes, with its digest.
func (x *chartIndex) resolveRef(ctx context.Context, ref string) (string, error) {
	if x.inHub {
		if revision := x.seen.Revisions[ref]; x.isUnchanged && revision != "" {
			return revision, nil
		}
		return "", errUnknownHere
	}
	chart, versions := cutRef(ref)
	entries, ok, err := x.index.findVersions(chart)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", newFailure(atoll.ReasonChartMissing, "the index of the repository has no chart %s", chart)
	}
	available := make([]string, 0, len(entries))
	for _, e := range entries {
		available = append(available, e.Version)
	}
	version, err := chooseVersion("the chart "+chart, versions, available)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Version != version {
			continue
		}
		revision, err := x.identifyEntry(ctx, chart, e)
		if err == nil {
			x.found.Revisions[ref] = revision
		}
		return revision, err
	}
	return "", newFailure(atoll.ReasonVersionMissing, "the index of the repository has no version %s of the chart %s", version, chart)
}

// identifyEntry returns the revision of a version. The archive is read for it where the index states no digest.
func (x *chartIndex) identifyEntry(ctx context.Context, chart string, e indexEntry) (string, error) {
	digest := strings.ToLower(strings.TrimPrefix(e.Digest, "sha256:"))
	var archive []byte
	switch raw, err := hex.DecodeString(digest); {
	case e.Digest == "":
		if archive, err = x.downloadArchive(ctx, chart, e); err != nil {
			return "", err
		}
		sum := sha256.Sum256(archive)
		digest = hex.EncodeToString(sum[:])
	case err != nil || len(raw) != sha256.Size:
		return "", newFailure(atoll.ReasonDigestMismatch, "the index states a digest of the chart %s %s that is no SHA-256", chart, e.Version)
	}
	revision := revisionOf(chart, e.Version, "sha256:"+digest)
	if archive != nil {
		x.archives[revision] = archive
	}
	x.entryOf[revision] = e
	return revision, nil
}

// locateArchive returns the address of the archive of a version.
func (x *chartIndex) locateArchive(chart string, e indexEntry) (*url.URL, error) {
	if len(e.URLs) == 0 {
		return nil, newFailure(atoll.ReasonContentInvalid, "the index states no address of the chart %s %s", chart, e.Version)
	}
	at, err := x.base.Parse(e.URLs[0])
	if err != nil || !isServerURL(at) {
		return nil, newFailure(atoll.ReasonContentInvalid, "the index states an address of the chart %s %s that is neither https:// nor http://", chart, e.Version)
	}
	return at, nil
}

// downloadArchive returns the archive of a version.
func (x *chartIndex) downloadArchive(ctx context.Context, chart string, e indexEntry) ([]byte, error) {
	at, err := x.locateArchive(chart, e)
	if err != nil {
		return nil, err
	}
	return x.downloadFile(ctx, at, fmt.Sprintf("the archive of the chart %s %s", chart, e.Version), maxChartBytes)
}

// downloadFile returns a file of a chart, of which what is the name. The file may be on another host, which gets no credentials.
func (x *chartIndex) downloadFile(ctx context.Context, at *url.URL, what string, most int64) ([]byte, error) {
	// A server that calls an archive compressed text would have it unpacked on the way.
	resp, err := x.get(ctx, at, true, http.Header{"Accept-Encoding": {"identity"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if errors.Is(err, errTooLarge) && x.sent > 0 {
		return nil, errLater
	}
	if err != nil {
		return nil, err
	}
	x.sent += int64(len(text))
	if int64(len(text)) > most {
		return nil, newFailure(atoll.ReasonContentTooLarge, "%s has more than %d bytes", what, most)
	}
	return text, nil
}

// openRevision reads an archive, and compares its digest with that of the index.
func (x *chartIndex) openRevision(ctx context.Context, revision string) (snapshot, error) {
	chart, version, digest := cutRevision(revision)
	archive, ok := x.archives[revision]
	if !ok {
		var err error
		if archive, err = x.downloadArchive(ctx, chart, x.entryOf[revision]); err != nil {
			return snapshot{}, err
		}
	}
	delete(x.archives, revision)
	sum := sha256.Sum256(archive)
	if digest != "sha256:"+hex.EncodeToString(sum[:]) {
		return snapshot{}, newFailure(atoll.ReasonDigestMismatch, "the archive of the chart %s %s has not the digest that the index states", chart, version)
	}
	signer, err := x.verifyArchive(ctx, chart, x.entryOf[revision], digest)
	if err != nil {
		return snapshot{}, err
	}
	opened, err := x.unpacked.readChart(archive, chart, version)
	opened.signer = signer
	return opened, err
}

// verifyArchive returns the signer of the provenance of an archive by its digest, before the archive is unpacked; empty where it need
// not have one. The provenance lies beside the archive.
func (x *chartIndex) verifyArchive(ctx context.Context, chart string, e indexEntry, digest string) (string, error) {
	if !x.verifier.requiresMode(signature.ModeProvenance) {
		return "", nil
	}
	archive, err := x.locateArchive(chart, e)
	if err != nil {
		return "", err
	}
	at := *archive
	at.Path += provenanceSuffix
	if at.RawPath != "" {
		at.RawPath += provenanceSuffix
	}
	text, err := x.downloadFile(ctx, &at, "the provenance", signature.MaxProvenanceBytes)
	var failure *Failure
	switch {
	case errors.As(err, &failure) && failure.Reason == atoll.ReasonRepositoryMissing:
		return "", newFailure(atoll.ReasonSignatureMissing, "the server has no provenance of the chart, a file with the name of the archive and .prov; see verify of the Repository")
	case errors.As(err, &failure) && failure.Reason == atoll.ReasonContentTooLarge:
		return "", newFailure(atoll.ReasonSignatureInvalid, "%s; see verify of the Repository", failure.Message)
	case err != nil:
		return "", err
	}
	signer, err := x.verifier.keys.VerifyProvenance(text, digest, time.Now())
	return string(signer), refusalOf(err)
}

// provenanceSuffix is what the name of a provenance has after that of its archive.
const provenanceSuffix = ".prov"

// httpStatusError is an answer of a server other than the one that was requested.
type httpStatusError int

// Error returns the status.
func (e httpStatusError) Error() string {
	return fmt.Sprintf("the server answers with status %d", int(e))
}

// statusError returns the failure of a status.
func statusError(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return errCredentials
	case http.StatusNotFound:
		return newFailure(atoll.ReasonRepositoryMissing, "the server has no such repository or archive, or hides it without credentials")
	}
	return httpStatusError(status)
}
