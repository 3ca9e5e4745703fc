package fetch

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/sshtest"
)

func TestContentsOverSSH(t *testing.T) {
	r := newRepository(t)
	first := r.commit(t, map[string]string{"a.yaml": configMap})
	r.runGit(t, r.work, "tag", "-a", "v1", "-m", "one")
	r.runGit(t, r.work, "push", "--quiet", "origin", "v1")
	second := r.commit(t, map[string]string{"b.yaml": configMap, "large.bin": strings.Repeat("x", 1<<20)})
	s := r.serveSSH(t)
	wants := append(wantMain(), Want{ID: "tag", Ref: "refs/tags/v1"}, Want{ID: "gone", Ref: "refs/heads/gone"})
	got := mustFetch(t, s.newRequest(func(r *Request) { r.Wants = wants }))
	for i, want := range []string{"a.yaml:1, b.yaml:1", "a.yaml:1", "failure RefMissing"} {
		if describe(got[i]) != want {
			t.Errorf("%s: %s, want %s", wants[i].ID, describe(got[i]), want)
		}
	}
	if got[0].Commit != second || got[1].Commit != first || s.LastUser.Load() != "deploy" {
		t.Errorf("%+v by %v", got, s.LastUser.Load())
	}
	for _, c := range []struct {
		old, now string
		want     bool
	}{{first, second, true}, {second, first, false}} {
		a, err := runFetch(t, s.newRequest(func(r *Request) { r.Wants, r.Descends = nil, &Descent{Old: c.old, New: c.now} }))
		if c.now == first {
			continue // the server may refuse a commit that no ref has
		}
		if err != nil || a.Descends != c.want {
			t.Errorf("%s from %s: %v, %v", c.now, c.old, a, err)
		}
	}
	// The hub itself finds that nothing moved, and starts no child.
	f := &Fetcher{Executable: []string{"/bin/false"}, AllowedNetworks: loopback}
	a, err := f.Fetch(t.Context(), s.newRequest(func(r *Request) { r.Wants[0].SeenCommit = second }))
	if err != nil || describe(a.Contents[0]) != "unchanged" {
		t.Errorf("a ref at rest: %+v, %v", a, err)
	}
}

// Paths are quoted, and those of a home directory are as in git.
func TestPathsOverSSH(t *testing.T) {
	for url, want := range map[string]string{
		"ssh://git@h/a.git":             "git@h:22 '/a.git'",
		"ssh://h:2222/~ann/a.git":       "git@h:2222 '~ann/a.git'",
		"ssh://git@[fd00::1]/a%20b":     "git@[fd00::1]:22 '/a b'",
		"ssh://ann@h/it's;reboot!/$(x)": `ann@h:22 '/it'\''s;reboot'\!'/$(x)'`,
		"ssh://git:hush@h/a":            "InvalidField",
		"ssh://@h/a":                    "InvalidField",
		"ssh://git@h":                   "InvalidField",
		"ssh://git@h/":                  "InvalidField",
		"ssh://git@h/a%0ab":             "InvalidField",
		"ssh://git%0a@h/a":              "InvalidField",
		"ssh://git@h/a?b":               "InvalidField",
		"ssh://git@[fe80::1%25lo]/a":    "InvalidField",
	} {
		p, err := parseSSHPlace(url)
		got := p.user + "@" + p.address + " " + quoteForShell(p.path)
		if err != nil {
			got = string(reasonOf(t, err))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// expectHushed fails when a text has a part of a private key or a text of the server.
func expectHushed(t *testing.T, name, text string, r Request) {
	t.Helper()
	lines := strings.Split(r.SSH.Identity, "\n")
	secrets := []string{"hush"}
	if len(lines) > 2 {
		secrets = append(secrets, lines[1], lines[2])
	}
	for _, secret := range secrets {
		if len(secret) > 3 && strings.Contains(text, secret) {
			t.Errorf("%s: %q is in %q", name, secret, text)
		}
	}
}

func TestKeysOfServersOverSSH(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	s := r.serveSSH(t)
	other, otherKey := sshtest.NewKey(t)
	port := s.Address[strings.LastIndex(s.Address, ":"):]
	line := knownhosts.Line([]string{s.Address}, s.Host.PublicKey())
	key := strings.SplitN(line, " ", 2)[1]
	encrypted := func(passphrase string) string {
		_, raw, _ := ed25519.GenerateKey(rand.Reader)
		block, err := ssh.MarshalPrivateKeyWithPassphrase(raw, "", []byte(passphrase))
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(block))
	}
	for name, c := range map[string]struct {
		change func(*Request)
		want   string
		text   string
	}{
		"a hashed host": {func(r *Request) {
			r.SSH.KnownHosts = knownhosts.HashHostname(knownhosts.Normalize(s.Address)) + " " + key
		}, "a.yaml:1", ""},
		"several lines":        {func(r *Request) { r.SSH.KnownHosts = "# keys\n\nh " + key + "\n" + line + "\n" }, "a.yaml:1", ""},
		"another port":         {func(r *Request) { r.SSH.KnownHosts = "127.0.0.1 " + key }, "ServerNotVerified", "has none of [127.0.0.1]" + port},
		"another key":          {func(r *Request) { r.SSH.KnownHosts = knownhosts.Line([]string{s.Address}, other.PublicKey()) }, "ServerNotVerified", ssh.FingerprintSHA256(s.Host.PublicKey())},
		"an unknown host":      {func(r *Request) { r.SSH.KnownHosts = "h " + key }, "ServerNotVerified", "ssh-ed25519 " + ssh.FingerprintSHA256(s.Host.PublicKey())},
		"a revoked key":        {func(r *Request) { r.SSH.KnownHosts = line + "\n@revoked * " + key }, "ServerNotVerified", "revokes"},
		"the key of a CA":      {func(r *Request) { r.SSH.KnownHosts = "@cert-authority " + line }, "ServerNotVerified", "is not that of"},
		"no known hosts":       {func(r *Request) { r.SSH.KnownHosts = " \n" }, "CredentialsMalformed", "known_hosts"},
		"comments alone":       {func(r *Request) { r.SSH.KnownHosts = "# nothing" }, "ServerNotVerified", "has none of"},
		"bad known hosts":      {func(r *Request) { r.SSH.KnownHosts = line + "\nhush hush" }, "CredentialsMalformed", "line 2,"},
		"many wildcards":       {func(r *Request) { r.SSH.KnownHosts = "a,*a*a*b " + key }, "CredentialsMalformed", "line 1"},
		"long known hosts":     {func(r *Request) { r.SSH.KnownHosts = strings.Repeat(line+"\n", 1000) }, "CredentialsMalformed", "bytes"},
		"a key of others":      {func(r *Request) { r.SSH.Identity = otherKey }, "CredentialsRefused", "deploy"},
		"no key":               {func(r *Request) { r.SSH.Identity = "hush" }, "CredentialsMalformed", "identity"},
		"a long key":           {func(r *Request) { r.SSH.Identity = strings.Repeat("hush", 10_000) }, "CredentialsMalformed", "bytes"},
		"a public key":         {func(r *Request) { r.SSH.Identity = string(ssh.MarshalAuthorizedKey(s.User.PublicKey())) }, "CredentialsMalformed", "identity"},
		"an encrypted key":     {func(r *Request) { r.SSH.Identity = encrypted("p") }, "CredentialsMalformed", "as the key password"},
		"a wrong password":     {func(r *Request) { r.SSH.Identity, r.SSH.Passphrase = encrypted("p"), "hush" }, "CredentialsMalformed", "does not decrypt"},
		"a right password":     {func(r *Request) { r.SSH.Identity, r.SSH.Passphrase = encrypted("p"), "p" }, "CredentialsRefused", "refuses the key"},
		"a key of a dead kind": {func(r *Request) { r.SSH.Identity = newDSAKey(t) }, "CredentialsMalformed", "ssh-keygen -t ed25519"},
		"no credentials":       {func(r *Request) { r.SSH = nil }, "CredentialsMissing", "identity and known_hosts"},
		"another repository":   {func(r *Request) { r.URL = strings.Replace(r.URL, "a.git", "b.git", 1) }, "RepositoryMissing", "hides it from the key"},
	} {
		req := s.newRequest(c.change)
		a, err := runFetch(t, req)
		got, text := "", ""
		if err != nil {
			got, text = string(reasonOf(t, err)), err.Error()
		} else {
			got = describe(a.Contents[0])
		}
		if got != c.want || !strings.Contains(text, c.text) {
			t.Errorf("%s: %s (%s), want %s with %q", name, got, text, c.want, c.text)
		}
		if req.SSH != nil {
			expectHushed(t, name, text, req)
		}
	}
}

func newDSAKey(t *testing.T) string {
	t.Helper()
	// The numbers need not be those of a group: the type alone is refused.
	n := func(bits uint) *big.Int { return new(big.Int).SetBit(big.NewInt(1), int(bits)-1, 1) }
	version, p, q, g, y, x := big.NewInt(0), n(1024), n(160), big.NewInt(2), big.NewInt(4), big.NewInt(2)
	raw := derSequence(version, p, q, g, y, x)
	return string(pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: raw}))
}

// A host with a certificate of a known CA is known. A certificate of another host or of another CA is not.
func TestCertificatesOfHosts(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	authority, _ := sshtest.NewKey(t)
	other, _ := sshtest.NewKey(t)
	for name, c := range map[string]struct {
		change func(*ssh.Certificate)
		signer ssh.Signer
		want   string
	}{
		"right":      {func(*ssh.Certificate) {}, authority, "a.yaml:1"},
		"another CA": {func(*ssh.Certificate) {}, other, "ServerNotVerified"},
		"its name":   {func(c *ssh.Certificate) { c.ValidPrincipals = []string{"h"} }, authority, "ServerNotVerified"},
		"expired":    {func(c *ssh.Certificate) { c.ValidBefore = 1 }, authority, "ServerNotVerified"},
		"of a user":  {func(c *ssh.Certificate) { c.CertType = ssh.UserCert }, authority, "ServerNotVerified"},
	} {
		s := r.serveSSH(t, func(s *sshtest.Server) {
			cert := &ssh.Certificate{Key: s.Host.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity}
			c.change(cert)
			if err := cert.SignCert(rand.Reader, c.signer); err != nil {
				t.Fatal(err)
			}
			signer, err := ssh.NewCertSigner(cert, s.Host)
			if err != nil {
				t.Fatal(err)
			}
			s.Host = signer
		})
		a, err := runFetch(t, s.newRequest(func(r *Request) {
			r.SSH.KnownHosts = "@cert-authority [127.0.0.1]:* " + strings.SplitN(knownhosts.Line([]string{"h"}, authority.PublicKey()), " ", 2)[1]
			r.SSH.KnownHosts = strings.Replace(r.SSH.KnownHosts, "[127.0.0.1]:*", knownhosts.Normalize(s.Address), 1)
		}))
		got := ""
		if err != nil {
			got = string(reasonOf(t, err))
		} else {
			got = describe(a.Contents[0])
		}
		if got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

// A server with several keys shows the known one.
func TestAServerWithSeveralKeysShowsTheKnownOne(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	raw, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	s := r.serveSSH(t, func(s *sshtest.Server) { s.Change = func(c *ssh.ServerConfig) { c.AddHostKey(second) } })
	for _, key := range []ssh.PublicKey{s.Host.PublicKey(), second.PublicKey()} {
		got := mustFetch(t, s.newRequest(func(r *Request) { r.SSH.KnownHosts = knownhosts.Line([]string{s.Address}, key) }))
		if describe(got[0]) != "a.yaml:1" {
			t.Errorf("%s: %s", key.Type(), describe(got[0]))
		}
	}
}

// Broken algorithms are refused.
func TestBrokenAlgorithmsAreRefused(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	weak := ssh.InsecureAlgorithms()
	for name, change := range map[string]func(*ssh.ServerConfig){
		"key exchange": func(c *ssh.ServerConfig) { c.KeyExchanges = weak.KeyExchanges },
		"cipher":       func(c *ssh.ServerConfig) { c.Ciphers = weak.Ciphers },
	} {
		s := r.serveSSH(t, func(s *sshtest.Server) { s.Change = change })
		if _, err := runFetch(t, s.newRequest()); err == nil || reasonOf(t, err) != atoll.ReasonServerNotVerified || !strings.Contains(err.Error(), "algorithm") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// readOverSSH reads a commit in this process. A server that must be too late has less time than a hub gives.
func readOverSSH(t *testing.T, r Request, isShort bool) error {
	t.Helper()
	r.AllowedNetworks = loopback
	of, err := openRepository(r, place{maxText: maxOwnTextBytes, dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer of.closeIdle()
	session, err := of.(*gitRepository).connect()
	if err != nil {
		t.Fatal(err)
	}
	if s := session.(*sshServer); isShort {
		s.handshakeTime, s.answerTime = 300*time.Millisecond, 300*time.Millisecond
	}
	if err := of.readRefs(t.Context()); err != nil {
		return failureOf(err)
	}
	_, err = of.openRevision(t.Context(), strings.Repeat("a", 40))
	return failureOf(err)
}

func TestHostileServersOverSSH(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	endless := func(w io.Writer, text string) {
		for {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
	served := func(run func(ssh.Channel)) *sshTestServer {
		return r.serveSSH(t, func(s *sshtest.Server) { s.Run = run })
	}
	raw := func(serve func(net.Conn)) *sshTestServer {
		s := r.serveSSH(t)
		address := sshtest.Listen(t, serve)
		s.Address = address
		return s
	}
	banner := func(size int) *sshTestServer {
		return r.serveSSH(t, func(s *sshtest.Server) {
			s.Change = func(c *ssh.ServerConfig) {
				c.BannerCallback = func(ssh.ConnMetadata) string { return strings.Repeat("x", size) }
			}
		})
	}
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	refs := fmt.Sprintf("%s refs/heads/main\x00shallow\n", strings.Repeat("a", 40))
	refs = fmt.Sprintf("%04x%s0000", len(refs)+4, refs)
	for name, c := range map[string]struct {
		server *sshTestServer
		want   atoll.Reason
	}{
		"hangs":              {raw(func(c net.Conn) { <-block }), atoll.ReasonFetchTimedOut},
		"closes":             {raw(func(net.Conn) {}), atoll.ReasonRepositoryUnreachable},
		"endless banner":     {raw(func(c net.Conn) { endless(c, "hush\n") }), atoll.ReasonRepositoryUnreachable},
		"endless line":       {raw(func(c net.Conn) { endless(c, "hush") }), atoll.ReasonRepositoryUnreachable},
		"no server over ssh": {raw(func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 hush\r\n\r\n") }), atoll.ReasonRepositoryUnreachable},
		"old version":        {raw(func(c net.Conn) { io.WriteString(c, "SSH-1.5-hush\r\n"); <-block }), atoll.ReasonFetchTimedOut},
		"a banner":           {banner(4_000), atoll.ReasonRefMissing},
		"a large banner":     {banner(1_000_000), atoll.ReasonRepositoryUnreachable},
		"exec refused":       {r.serveSSH(t, func(s *sshtest.Server) { s.Refuses = true }), atoll.ReasonCredentialsRefused},
		"no answer":          {served(func(ssh.Channel) { <-block }), atoll.ReasonFetchTimedOut},
		"no refs":            {served(func(ssh.Channel) {}), atoll.ReasonRepositoryMissing},
		"an error line":      {served(func(c ssh.Channel) { io.WriteString(c, "000cERR hush") }), atoll.ReasonRepositoryMissing},
		"an error":           {served(func(c ssh.Channel) { io.WriteString(c.Stderr(), "hush") }), atoll.ReasonRepositoryMissing},
		"no git":             {served(func(c ssh.Channel) { io.WriteString(c, "Welcome to hush\n") }), atoll.ReasonRepositoryUnreachable},
		"endless refs":       {served(func(c ssh.Channel) { endless(c, strings.TrimSuffix(refs, "0000")) }), atoll.ReasonRepositoryUnreachable},
		"endless stderr":     {served(func(c ssh.Channel) { endless(c.Stderr(), "hush") }), atoll.ReasonRepositoryUnreachable},
		"no pack":            {served(func(c ssh.Channel) { io.WriteString(c, refs) }), atoll.ReasonRepositoryUnreachable},
		"a late pack":        {served(func(c ssh.Channel) { io.WriteString(c, refs); <-block }), atoll.ReasonFetchTimedOut},
		"a commit of no ref": {r.serveSSH(t), atoll.ReasonRefMissing},
	} {
		err := readOverSSH(t, c.server.newRequest(), c.want == atoll.ReasonFetchTimedOut)
		if err == nil || reasonOf(t, err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
			continue
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: a text of the server is in %v", name, err)
		}
	}
}

// The hub leaves an encrypted key to a child, and ends with its caller.
func TestTheHubDecryptsNoKey(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	s := r.serveSSH(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("p"))
	if err != nil {
		t.Fatal(err)
	}
	req := s.newRequest(func(r *Request) {
		r.SSH.Identity, r.SSH.Passphrase, r.AllowedNetworks = string(pem.EncodeToMemory(block)), "p", loopback
		r.Wants[0].SeenCommit = strings.Repeat("a", 40)
	})
	_, same, err := new(Fetcher).confirmSeen(t.Context(), req)
	if same || err != nil || s.Connections.Load() != 0 {
		t.Errorf("the hub: %v, %v after %d connections", same, err, s.Connections.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	hangs := sshtest.Listen(t, func(c net.Conn) { cancel(); io.Copy(io.Discard, c) })
	req = s.newRequest(func(r *Request) { r.URL, r.AllowedNetworks = "ssh://git@"+hangs+"/a.git", loopback })
	of, err := openRepository(req, place{inHub: true, maxText: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer of.closeIdle()
	if err := of.readRefs(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that ended: %v", err)
	}
}

// Addresses are refused over SSH as over HTTP, and no proxy is used.
func TestAddressesOverSSH(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	s := r.serveSSH(t)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "socks5://127.0.0.1:1")
	if got := mustFetch(t, s.newRequest()); describe(got[0]) != "a.yaml:1" {
		t.Error(describe(got[0]))
	}
	for _, host := range []string{"127.0.0.1", "localhost", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]"} {
		req := s.newRequest(func(r *Request) { r.URL, r.Wants[0].SeenCommit = "ssh://git@"+host+":22/a", strings.Repeat("a", 40) })
		_, _, err := new(Fetcher).confirmSeen(t.Context(), req)
		if err == nil || reasonOf(t, err) != atoll.ReasonAddressRefused {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := s.Connections.Load(); n > 1 {
		t.Errorf("%d connections", n)
	}
}

// A key of RSA signs by SHA-2 alone.
func TestRSASignsBySHA2(t *testing.T) {
	raw, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	restricted, err := restrictSigner(signer)
	if err != nil {
		t.Fatal(err)
	}
	if got := restricted.(ssh.MultiAlgorithmSigner).Algorithms(); !slices.Equal(got, []string{"rsa-sha2-512", "rsa-sha2-256"}) {
		t.Error(got)
	}
}

// hugeKey is a key of RSA by which a signature takes minutes.
type hugeKey struct{ ssh.Signer }

func (hugeKey) PublicKey() ssh.PublicKey {
	key, err := ssh.NewPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxIdentityBits), E: 65537})
	if err != nil {
		panic(err)
	}
	return key
}

// The hub itself signs by the key, so one of any length would hold the hub.
func TestHugeKeysAreRefused(t *testing.T) {
	if _, err := restrictSigner(hugeKey{}); err == nil || reasonOf(t, err) != atoll.ReasonCredentialsMalformed || !strings.Contains(err.Error(), "more than 8192 bits") {
		t.Error(err)
	}
}

// derSequence returns a sequence of numbers in DER.
func derSequence(numbers ...*big.Int) []byte {
	raw, err := asn1.Marshal(numbers)
	if err != nil {
		panic(err)
	}
	return raw
}
