package gitfetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// gitServer is a repository on a server.
type gitServer struct {
	client transport.Transport
	at     *transport.Endpoint
	auth   transport.AuthMethod
	// packLeft is what the server may still send as packs, of all commits together.
	packLeft *int64
	builds   renderchild.Runner
	// closeIdle closes the connections that no request uses.
	closeIdle func()
}

// errMoved ends a redirect to another origin.
var errMoved = errors.New("the server redirects to another host")

// errTooLarge ends a pack, and errTextTooLarge a list of refs, that is larger than it may be.
var (
	errTooLarge     = errors.New("the server sends more than a fetch may read")
	errTextTooLarge = errors.New("the server sends a longer list of refs than a fetch may read")
)

// openServer prepares the connection, with the most bytes that a list of refs may have. Nothing is dialled yet.
func openServer(r Request, maxText int64) (*gitServer, error) {
	u, err := url.Parse(r.URL)
	if err != nil || !isServerURL(u) {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL is not https://HOST/PATH or http://HOST/PATH without credentials")
	}
	through, err := newTransport(u, r)
	if err != nil {
		return nil, err
	}
	at, err := transport.NewEndpoint(r.URL)
	if err != nil {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL is not one of a git repository")
	}
	s := &gitServer{at: at, packLeft: new(int64), closeIdle: through.CloseIdleConnections}
	*s.packLeft = maxPackBytes
	s.client = githttp.NewClientWithOptions(&http.Client{
		Transport: boundedTransport{through, s.packLeft, maxText},
		CheckRedirect: func(to *http.Request, _ []*http.Request) error {
			if to.URL.Scheme != u.Scheme || to.URL.Host != u.Host {
				return errMoved
			}
			return nil
		},
	}, &githttp.ClientOptions{RedirectPolicy: githttp.FollowInitialRedirects})
	if r.Password != "" || r.Username != "" {
		s.auth = &githttp.BasicAuth{Username: r.Username, Password: r.Password}
	}
	return s, nil
}

// isServerURL reports whether a URL names a server, without credentials and without a zone or an escape in its host.
func isServerURL(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && !strings.Contains(u.Host, "%") && u.User == nil
}

// newTransport returns a transport that dials what the guard allows.
func newTransport(server *url.URL, r Request) (*http.Transport, error) {
	allowed, err := addressguard.ParseNetworks(r.AllowedNetworks)
	if err != nil {
		return nil, err
	}
	own, err := listHubAddresses()
	if err != nil {
		return nil, newFailure(atoll.ReasonFetchFailed, "the hub cannot list the addresses of its machine, which are refused: %v", err)
	}
	dial, proxy, err := addressguard.Guard{Allowed: allowed, HubAddresses: own, OwnProxy: http.ProxyFromEnvironment}.ChooseProxy(server)
	var refused *addressguard.RefusedAddressError
	if errors.As(err, &refused) {
		return nil, err
	}
	if err != nil {
		// The error has the proxy's URL, which may have a password.
		return nil, newFailure(atoll.ReasonFetchFailed, "the proxy in the hub's environment is not a URL; its operator must correct it")
	}
	security := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CABundle != "" {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM([]byte(r.CABundle)) {
			return nil, newFailure(atoll.ReasonInvalidField, "caBundle has no certificate in PEM")
		}
	}
	soon := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
	return &http.Transport{
		DialContext: soon, Proxy: http.ProxyURL(proxy), TLSClientConfig: security, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: answerTimeout,
	}, nil
}

// listHubAddresses returns the addresses of this machine.
func listHubAddresses() (out []netip.Addr, err error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}

// boundedTransport bounds the bodies of answers.
type boundedTransport struct {
	next     http.RoundTripper
	packLeft *int64
	maxText  int64
}

// RoundTrip bounds the body by the request. The text of an error is not read.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text := t.maxText
	body := &boundedBody{ReadCloser: resp.Body, left: &text, full: errTextTooLarge}
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices:
		resp.Body.Close()
		resp.Body = http.NoBody
		return resp, nil
	case r.Method == http.MethodPost:
		body.left, body.full = t.packLeft, errTooLarge
	}
	resp.Body = body
	return resp, nil
}

// boundedBody is read by one goroutine. It fails when more is read than it may have.
type boundedBody struct {
	io.ReadCloser
	left *int64
	full error
}

// Read reads, and fails beyond the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, b.full
	}
	return n, err
}

// listRefs returns the refs that the server offers, and what it can do.
func (s *gitServer) listRefs(ctx context.Context) (transport.UploadPackSession, *packp.AdvRefs, error) {
	session, err := s.client.NewUploadPackSession(s.at, s.auth)
	if err != nil {
		return nil, nil, err
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	return session, refs, err
}

// resolveRef returns the commit of a ref. A tag object stands for its commit.
func resolveRef(refs *packp.AdvRefs, ref string) (plumbing.Hash, error) {
	if isCommitHash(ref) {
		return plumbing.NewHash(ref), nil
	}
	if h, ok := refs.Peeled[ref]; ok {
		return h, nil
	}
	if h, ok := refs.References[ref]; ok {
		return h, nil
	}
	return plumbing.ZeroHash, newFailure(atoll.ReasonRefMissing, "the repository has no %s", describeRef(ref))
}

func describeRef(ref string) string {
	for prefix, kind := range map[string]string{"refs/heads/": "branch ", "refs/tags/": "tag "} {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			return kind + name
		}
	}
	return "commit " + ref
}

// fetchCommit writes the objects of one commit, without its history.
func (s *gitServer) fetchCommit(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, commit plumbing.Hash, into storer.Storer) error {
	req := newPackRequest(refs, commit)
	if refs.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
	}
	return readPack(ctx, session, req, into)
}

func newPackRequest(refs *packp.AdvRefs, commit plumbing.Hash) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	// A thin pack leaves out objects that this side does not have.
	req.Capabilities.Delete(capability.ThinPack)
	req.Wants = append(req.Wants, commit)
	return req
}

// readPack requests a pack, and writes its objects.
func readPack(ctx context.Context, session transport.UploadPackSession, req *packp.UploadPackRequest, into storer.Storer) error {
	resp, err := session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Close()
	var pack io.Reader = resp
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, resp)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, resp)
	}
	return packfile.UpdateObjectStorage(into, pack)
}

// failureOf returns the failure of an error; nil for none.
func failureOf(err error) *Failure {
	var known *Failure
	var refused *addressguard.RefusedAddressError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return newFailure(atoll.ReasonAddressRefused, "%v; the hub's operator allows it by --source-allowed-cidrs", refused)
	case errors.Is(err, errMoved):
		return newFailure(atoll.ReasonRedirectRefused, "%v; state the URL that it leads to", errMoved)
	case errors.Is(err, errTextTooLarge):
		return newFailure(atoll.ReasonRepositoryUnreachable, "the server sends more than %d bytes as its list of refs", maxTextBytes)
	case errors.Is(err, errTooLarge):
		return newFailure(atoll.ReasonContentTooLarge, "the server sends more than %d bytes of one commit", maxPackBytes)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return newFailure(atoll.ReasonCredentialsRefused, "the server refuses the credentials, or needs some; see spec.git.secretRef")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return newFailure(atoll.ReasonRepositoryMissing, "the server has no such repository, or hides it without credentials")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return newFailure(atoll.ReasonRefMissing, "the repository is empty")
	}
	return connectionFailure(err)
}

// connectionFailure returns the failure of a connection, or of an answer.
func connectionFailure(err error) *Failure {
	var certificate *tls.CertificateVerificationError
	var status *githttp.Err
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &certificate):
		return newFailure(atoll.ReasonServerNotVerified, "the server's certificate cannot be verified: %s; see spec.git.caBundle", describeCertificate(certificate.Err))
	case errors.As(err, &status):
		return newFailure(atoll.ReasonRepositoryUnreachable, "the server answers with status %d", status.StatusCode())
	case errors.As(err, &dns):
		return newFailure(atoll.ReasonRepositoryUnreachable, "the name of the host, or of the hub's proxy, cannot be resolved")
	case errors.As(err, &timeout) && timeout.Timeout():
		return newFailure(atoll.ReasonFetchTimedOut, "the server does not answer in time")
	}
	return newFailure(atoll.ReasonRepositoryUnreachable, "%s", describeError(err))
}

// describeCertificate returns why a certificate is refused, without the names that the server wrote into it.
func describeCertificate(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return "it is of a CA that the hub does not trust"
	case errors.As(err, &host):
		return "it is of another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "it is not valid now"
	}
	return "it is of no valid form"
}

// describeError returns the kind of an error. A text that the server wrote may be in the error, and is left out.
func describeError(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return fmt.Sprintf("the connection fails: %v", operation.Err)
	}
	if slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, packfile.ErrMalformedPackFile, packfile.ErrEmptyPackfile, packfile.ErrInvalidObject}, func(one error) bool { return errors.Is(err, one) }) {
		return "the server's answer ends early or is damaged"
	}
	return "the server does not answer as a git server does"
}
