package fetch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// Bounds of what a server sends over SSH.
const (
	// maxHandshakeBytes is the most until the server has accepted the key, with its texts before.
	maxHandshakeBytes = 512 << 10
	// maxStderrBytes is the most on the standard error of git-upload-pack. The text is not read.
	maxStderrBytes = 64 << 10
)

// defaultSSHPort and defaultSSHUser are those of a URL without.
const (
	defaultSSHPort = "22"
	defaultSSHUser = "git"
)

// errHandshakeTooLarge ends a handshake, and errStderrTooLarge a command, that sends more than it may.
var (
	errHandshakeTooLarge = errors.New("the server sends more than a handshake may have")
	errStderrTooLarge    = errors.New("the server writes more errors than are read")
)

// SSHCredentials are the keys of a repository over SSH: that of the hub, and those of the server.
type SSHCredentials struct {
	// Identity is the private key, and Passphrase decrypts it.
	Identity   string `json:"identity,omitempty"`
	Passphrase string `json:"passphrase,omitempty"`
	// KnownHosts has the keys of the server.
	KnownHosts string `json:"knownHosts,omitempty"`
}

// sshPlace is a repository on a server over SSH.
type sshPlace struct {
	user string
	// address is the host and the port.
	address string
	// path is what git-upload-pack gets.
	path string
}

// parseSSHPlace reads a URL. A path that begins with /~ is one of a home directory, as in git.
func parseSSHPlace(text string) (sshPlace, error) {
	u, err := url.Parse(text)
	if err != nil || !isSSHURL(u) {
		return sshPlace{}, newFailure(atoll.ReasonInvalidField, "the URL is not ssh://USER@HOST/PATH without a password")
	}
	out := sshPlace{user: defaultSSHUser, path: u.Path}
	if u.User != nil {
		out.user = u.User.Username()
	}
	if strings.ContainsFunc(out.user+out.path, phrase.IsControl) {
		return sshPlace{}, newFailure(atoll.ReasonInvalidField, "the URL has a control character")
	}
	if strings.HasPrefix(out.path, "/~") {
		out.path = out.path[1:]
	}
	port := u.Port()
	if port == "" {
		port = defaultSSHPort
	}
	out.address = net.JoinHostPort(u.Hostname(), port)
	return out, nil
}

// isSSHURL reports whether a URL names a repository over SSH, without a password and without a zone or an escape in its host.
func isSSHURL(u *url.URL) bool {
	if _, hasPassword := u.User.Password(); hasPassword || u.User != nil && u.User.Username() == "" {
		return false
	}
	return u.Scheme == sshScheme && u.Hostname() != "" && !strings.Contains(u.Host, "%") && u.RawQuery+u.Fragment == "" && len(u.Path) >= 2
}

// sshServer is git-upload-pack on a server over SSH. Each exchange has a connection of its own, because not all servers
// take a second command on one. Only the hub's guard dials, so no proxy and no other program is used. One goroutine uses it.
type sshServer struct {
	place       sshPlace
	credentials SSHCredentials
	inHub       bool
	guard       addressguard.Guard
	maxText     int64
	packLeft    *int64
	// signer is the private key; nil until an exchange reads it. Decryption takes time, so it runs once.
	signer ssh.Signer
	// handshakeTime and answerTime are connectTimeout and answerTimeout; tests have less.
	handshakeTime, answerTime time.Duration
	// ready is an exchange whose refs are read, and open is every one.
	ready *sshExchange
	open  []*sshConn
}

// openSSH prepares the connection. Nothing is dialled yet.
func openSSH(r Request, of place, verifier *gitVerifier) (repository, error) {
	at, err := parseSSHPlace(r.URL)
	if err != nil {
		return nil, err
	}
	if r.SSH == nil {
		return nil, newFailure(atoll.ReasonCredentialsMissing, "a repository over ssh needs a Secret with identity and known_hosts")
	}
	guard, err := newGuard(r)
	if err != nil {
		return nil, err
	}
	g := &gitRepository{packLeft: new(int64), dir: of.dir, verifier: verifier}
	*g.packLeft = maxPackBytes
	s := &sshServer{
		place: at, credentials: *r.SSH, inHub: of.inHub, guard: guard, maxText: of.maxText, packLeft: g.packLeft,
		handshakeTime: connectTimeout, answerTime: answerTimeout,
	}
	g.connect, g.close = func() (packSession, error) { return s, nil }, s.closeAll
	return g, nil
}

// closeAll closes all connections.
func (s *sshServer) closeAll() {
	for _, c := range s.open {
		c.Close()
	}
	s.open, s.ready = nil, nil
}

// AdvertisedReferencesContext reads the refs.
func (s *sshServer) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	e, err := s.startExchange(ctx)
	if err != nil {
		return nil, err
	}
	s.ready = e
	return e.refs, nil
}

// UploadPack requests a pack, by the connection that has read the refs, or by a new one.
func (s *sshServer) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if req.IsEmpty() {
		return nil, transport.ErrEmptyUploadPackRequest
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	e := s.ready
	s.ready = nil
	if e == nil {
		var err error
		if e, err = s.startExchange(ctx); err != nil {
			return nil, err
		}
	}
	if !givesWants(e.refs, req.Wants) {
		return nil, newFailure(atoll.ReasonRefMissing, "the server gives over ssh only commits that a branch or a tag has: name one of these, or let it allow others by uploadpack.allowReachableSHA1InWant")
	}
	resp, err := e.requestPack(req, s.answerTime, s.packLeft)
	if err != nil {
		return nil, e.conn.explainError(err)
	}
	return resp, nil
}

// givesWants reports whether the server gives what is requested. One without the capabilities ends an exchange with
// a commit that is of no ref.
func givesWants(refs *packp.AdvRefs, wants []plumbing.Hash) bool {
	for _, c := range []capability.Capability{capability.AllowReachableSHA1InWant, "allow-any-sha1-in-want"} {
		if refs.Capabilities.Supports(c) {
			return true
		}
	}
	return !slices.ContainsFunc(wants, func(want plumbing.Hash) bool {
		return !hasRefTo(refs, want) && (refs.Head == nil || *refs.Head != want)
	})
}

// startExchange connects, and reads the refs.
func (s *sshServer) startExchange(ctx context.Context) (*sshExchange, error) {
	config, hosts, err := s.newConfig()
	if err != nil {
		return nil, err
	}
	conn, err := s.dialServer(ctx)
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, conn)
	e, err := s.runUploadPack(conn, config, hosts)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, conn.explainError(err)
	}
	return e, nil
}

// dialServer connects to the server. The guard checks the address after its name is resolved.
func (s *sshServer) dialServer(ctx context.Context) (*sshConn, error) {
	limited, cancel := context.WithTimeout(ctx, s.handshakeTime)
	defer cancel()
	raw, err := s.guard.DialAddress(limited, "tcp", s.place.address)
	if err != nil {
		return nil, err
	}
	conn := &sshConn{Conn: raw, left: maxHandshakeBytes, full: errHandshakeTooLarge}
	conn.stop = context.AfterFunc(ctx, func() { raw.Close() })
	return conn, nil
}

// runUploadPack verifies the server, shows it the key, and starts git-upload-pack.
func (s *sshServer) runUploadPack(conn *sshConn, config *ssh.ClientConfig, hosts *hostVerifier) (*sshExchange, error) {
	if err := conn.SetDeadline(time.Now().Add(s.handshakeTime)); err != nil {
		return nil, err
	}
	c, channels, requests, err := ssh.NewClientConn(conn, s.place.address, config)
	if err != nil {
		return nil, s.explainHandshake(err, hosts)
	}
	client := ssh.NewClient(c, channels, requests)
	packs := *s.packLeft
	if s.inHub {
		packs = 0
	}
	conn.allowBytes(2*s.maxText+packs+maxHandshakeBytes, errTooLarge)
	if err := conn.SetDeadline(time.Now().Add(s.answerTime)); err != nil {
		return nil, err
	}
	e := &sshExchange{conn: conn, left: s.maxText, full: errTextTooLarge}
	if err := e.start(client, "git-upload-pack "+quoteForShell(s.place.path)); err != nil {
		return nil, err
	}
	return e, e.readRefs()
}

// explainHandshake returns why a handshake failed.
func (s *sshServer) explainHandshake(err error, hosts *hostVerifier) error {
	var algorithms *ssh.AlgorithmNegotiationError
	switch {
	case hosts.failure != nil:
		return hosts.failure
	case errors.As(err, &algorithms):
		return newFailure(atoll.ReasonServerNotVerified, "the server and the hub have no algorithm in common: the hub takes none that is broken, such as SHA-1 and DSA")
	case hosts.verified && strings.Contains(err.Error(), "unable to authenticate"):
		return newFailure(atoll.ReasonCredentialsRefused, "the server refuses the key of the user %s; see identity of the Secret", s.place.user)
	}
	return err
}

// quoteForShell quotes a path as git does: servers run commands by a shell.
func quoteForShell(path string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}

// sshConn bounds what a server sends, and keeps the error that ended the connection: SSH makes an end of file of it.
type sshConn struct {
	net.Conn
	stop func() bool

	mu   sync.Mutex
	left int64
	full error
	err  error
}

// Read reads, and fails beyond the bound.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left -= int64(n); c.left < 0 {
		n, err = 0, c.full
	}
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// Close closes the connection.
func (c *sshConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// endConnection closes the connection for a reason.
func (c *sshConn) endConnection(why error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = why
	}
	c.mu.Unlock()
	c.Conn.Close()
}

// allowBytes sets what the server may still send.
func (c *sshConn) allowBytes(most int64, full error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.full = most, full
}

// explainError returns the error that ended the connection, in place of one that follows from it.
func (c *sshConn) explainError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var known *Failure
	if c.err == nil || errors.As(err, &known) || errors.Is(err, errTextTooLarge) || errors.Is(err, errTooLarge) || errors.Is(c.err, io.EOF) {
		return err
	}
	return c.err
}

// sshExchange is one run of git-upload-pack.
type sshExchange struct {
	conn *sshConn
	in   io.WriteCloser
	out  *bufio.Reader
	raw  io.Reader
	refs *packp.AdvRefs
	// left is what may still be read, and full the error beyond.
	left int64
	full error
}

// Read reads the standard output of git-upload-pack, and fails beyond the bound.
func (e *sshExchange) Read(p []byte) (int, error) {
	n, err := e.raw.Read(p)
	if e.left -= int64(n); e.left < 0 {
		return 0, e.full
	}
	return n, err
}

// start starts a command.
func (e *sshExchange) start(client *ssh.Client, command string) error {
	session, err := client.NewSession()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if e.in, err = session.StdinPipe(); err != nil {
		return err
	}
	if e.raw, err = session.StdoutPipe(); err != nil {
		return err
	}
	session.Stderr = &stderrSink{conn: e.conn, left: maxStderrBytes}
	if err := session.Start(command); errors.Is(err, io.EOF) {
		return err
	} else if err != nil {
		return newFailure(atoll.ReasonCredentialsRefused, "the server accepts the key, and refuses to run git-upload-pack for it")
	}
	e.out = bufio.NewReader(e)
	return nil
}

// stderrSink drops what a command writes to its standard error, and closes the connection beyond a bound.
type stderrSink struct {
	conn *sshConn
	left int64
}

// Write drops a text.
func (s *stderrSink) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		s.conn.endConnection(errStderrTooLarge)
		return 0, errStderrTooLarge
	}
	return len(p), nil
}

// awaitAnswer waits for the first byte of an answer.
func (e *sshExchange) awaitAnswer() error {
	if _, err := e.out.Peek(1); err != nil {
		return err
	}
	return e.conn.SetDeadline(time.Time{})
}

// readRefs reads the list of refs.
func (e *sshExchange) readRefs() error {
	missing := newFailure(atoll.ReasonRepositoryMissing, "the server has no such repository, or hides it from the key")
	err := e.awaitAnswer()
	if ended := e.conn.explainError(nil); errors.Is(err, io.EOF) && ended == nil {
		return missing
	}
	if err != nil {
		return err
	}
	e.refs = packp.NewAdvRefs()
	var line *pktline.ErrorLine
	switch err := e.refs.Decode(e.out); {
	case errors.As(err, &line):
		return missing
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && e.refs.IsEmpty():
		return transport.ErrEmptyRemoteRepository
	case err != nil:
		return err
	}
	transport.FilterUnsupportedCapabilities(e.refs.Capabilities)
	return nil
}

// requestPack sends a request, and returns the answer before its pack.
func (e *sshExchange) requestPack(req *packp.UploadPackRequest, within time.Duration, packLeft *int64) (*packp.UploadPackResponse, error) {
	if err := e.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	if err := req.UploadRequest.Encode(e.in); err != nil {
		return nil, err
	}
	if err := req.UploadHaves.Encode(e.in, true); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(e.in).EncodeString("done\n"); err != nil {
		return nil, err
	}
	e.left, e.full = *packLeft, errTooLarge
	if err := e.awaitAnswer(); err != nil {
		return nil, err
	}
	resp := packp.NewUploadPackResponse(req)
	return resp, resp.Decode(&packBody{exchange: e, packLeft: packLeft})
}

// packBody is the answer with a pack. Its bytes count for all packs of a child.
type packBody struct {
	exchange *sshExchange
	packLeft *int64
}

// Read reads the answer.
func (b *packBody) Read(p []byte) (int, error) {
	n, err := b.exchange.out.Read(p)
	*b.packLeft -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.exchange.conn.explainError(err)
	}
	return n, err
}

// Close closes the connection.
func (b *packBody) Close() error { return b.exchange.conn.Close() }
