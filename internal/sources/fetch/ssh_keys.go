package fetch

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"atoll.dev/atoll/internal/atoll"
)

// Bounds of the Secret of a repository over SSH.
const (
	maxIdentityBytes   = 32 << 10
	maxIdentityBits    = 8192
	maxKnownHostsBytes = 64 << 10
	// maxWildcards is the most * in one pattern of known_hosts. The time to match one grows with their number.
	maxWildcards = 2
)

// newConfig returns the key of the hub, and the check of that of the server. Broken algorithms are not offered.
func (s *sshServer) newConfig() (*ssh.ClientConfig, *hostVerifier, error) {
	if s.signer == nil {
		signer, err := s.parseIdentity()
		if err != nil {
			return nil, nil, err
		}
		s.signer = signer
	}
	hosts, err := newHostVerifier(s.credentials.KnownHosts, s.place.address)
	if err != nil {
		return nil, nil, err
	}
	offered := ssh.SupportedAlgorithms()
	return &ssh.ClientConfig{
		Config: ssh.Config{KeyExchanges: offered.KeyExchanges, Ciphers: offered.Ciphers, MACs: offered.MACs},
		User:   s.place.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(s.signer)},
		HostKeyCallback: hosts.verifyKey, HostKeyAlgorithms: hosts.orderAlgorithms(offered.HostKeys),
	}, hosts, nil
}

// parseIdentity reads the private key. An encrypted one takes time that its author chooses, so a child reads it.
func (s *sshServer) parseIdentity() (ssh.Signer, error) {
	text := []byte(s.credentials.Identity)
	if len(text) > maxIdentityBytes {
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "identity of the Secret has more than %d bytes", maxIdentityBytes)
	}
	signer, err := ssh.ParsePrivateKey(text)
	var encrypted *ssh.PassphraseMissingError
	if errors.As(err, &encrypted) {
		if s.inHub {
			return nil, errUnknownHere
		}
		if s.credentials.Passphrase == "" {
			return nil, newFailure(atoll.ReasonCredentialsMalformed, "identity of the Secret is encrypted: add its password as the key password")
		}
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(text, []byte(s.credentials.Passphrase)); err != nil {
			return nil, newFailure(atoll.ReasonCredentialsMalformed, "password of the Secret does not decrypt identity")
		}
	}
	if err != nil {
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "identity of the Secret is no private key of OpenSSH or in PEM")
	}
	return restrictSigner(signer)
}

// restrictSigner returns a signer without algorithms that are broken.
func restrictSigner(signer ssh.Signer) (ssh.Signer, error) {
	if public, is := signer.PublicKey().(ssh.CryptoPublicKey); is {
		if key, isRSA := public.CryptoPublicKey().(*rsa.PublicKey); isRSA && key.N.BitLen() > maxIdentityBits {
			return nil, newFailure(atoll.ReasonCredentialsMalformed, "identity of the Secret is a key of RSA with more than %d bits", maxIdentityBits)
		}
	}
	offered := ssh.SupportedAlgorithms().PublicKeyAuths
	algorithms := slices.DeleteFunc(algorithmsOfKey(signer.PublicKey().Type()), func(a string) bool { return !slices.Contains(offered, a) })
	by, can := signer.(ssh.AlgorithmSigner)
	if !can || len(algorithms) == 0 {
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "identity of the Secret is a key of a type that the hub does not use; make one by ssh-keygen -t ed25519")
	}
	restricted, err := ssh.NewSignerWithAlgorithms(by, algorithms)
	if err != nil {
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "identity of the Secret is a key of a type that the hub does not use; make one by ssh-keygen -t ed25519")
	}
	return restricted, nil
}

// algorithmsOfKey returns the algorithms by which a key of a type signs.
func algorithmsOfKey(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

// certificateAlgorithms are those by which a host with a certificate can sign.
var certificateAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// hostVerifier verifies the key of one server.
type hostVerifier struct {
	check   ssh.HostKeyCallback
	lines   []string
	address string
	// verified is true once the server has shown a known key, and failure is why it has not.
	verified bool
	failure  *Failure
}

// newHostVerifier reads known_hosts. Its library reads files, and this one is of no secret.
func newHostVerifier(text, address string) (*hostVerifier, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "known_hosts of the Secret is empty: add the keys of the server, as ssh-keyscan prints them, after you compared their fingerprints")
	case len(text) > maxKnownHostsBytes:
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "known_hosts of the Secret has more than %d bytes", maxKnownHostsBytes)
	}
	v := &hostVerifier{lines: strings.Split(text, "\n"), address: address}
	for i, line := range v.lines {
		if hasManyWildcards(line) {
			return nil, newFailure(atoll.ReasonCredentialsMalformed, "known_hosts of the Secret, line %d: a pattern has more than %d *", i+1, maxWildcards)
		}
	}
	file, err := os.CreateTemp("", dirPrefix+"hosts-")
	if err != nil {
		return nil, newFailure(atoll.ReasonFetchFailed, "write known_hosts: %v", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if release, locked := lockDirectory(file.Name()); locked {
		defer release()
	}
	if _, err := file.WriteString(text); err != nil {
		return nil, newFailure(atoll.ReasonFetchFailed, "write known_hosts: %v", err)
	}
	if v.check, err = knownhosts.New(file.Name()); err != nil {
		return nil, newFailure(atoll.ReasonCredentialsMalformed, "known_hosts of the Secret%s is not of the form of OpenSSH", lineOf(err, file.Name()))
	}
	return v, nil
}

// hasManyWildcards reports whether a pattern of a line has more wildcards than it may have.
func hasManyWildcards(line string) bool {
	for _, word := range strings.Fields(line) {
		if strings.HasPrefix(word, "@") {
			continue
		}
		for pattern := range strings.SplitSeq(word, ",") {
			if strings.Count(pattern, "*") > maxWildcards {
				return true
			}
		}
		return false
	}
	return false
}

// lineOf returns the line that an error of known_hosts names.
func lineOf(err error, file string) string {
	_, after, found := strings.Cut(err.Error(), file+":")
	line, _, _ := strings.Cut(after, ":")
	if !found || line == "" || strings.Trim(line, "0123456789") != "" {
		return ""
	}
	return ", line " + line + ","
}

// verifyKey verifies the key of the server. A key of a CA is no key of a host.
func (v *hostVerifier) verifyKey(address string, remote net.Addr, key ssh.PublicKey) error {
	err := v.check(address, remote, key)
	if err == nil && v.isAuthorityOnly(address, remote, key) {
		err = &knownhosts.KeyError{Want: v.listKeys(address, remote)}
	}
	if err == nil {
		v.verified = true
		return nil
	}
	v.failure = v.explainRefusal(err, key)
	return v.failure
}

// explainRefusal returns why a key is refused, with its fingerprint.
func (v *hostVerifier) explainRefusal(err error, key ssh.PublicKey) *Failure {
	var unknown *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	host := knownhosts.Normalize(v.address)
	// A library states the type of each key that it can read, so the type is no text of the server.
	shown := fmt.Sprintf("%s %s", key.Type(), ssh.FingerprintSHA256(key))
	switch {
	case errors.As(err, &revoked):
		return newFailure(atoll.ReasonServerNotVerified, "the server shows the host key %s, which known_hosts of the Secret revokes", shown)
	case errors.As(err, &unknown) && len(unknown.Want) == 0:
		return newFailure(atoll.ReasonServerNotVerified, "the server shows the host key %s, and known_hosts of the Secret has none of %s: add the key after you compared the fingerprint with its operator's", shown, host)
	case errors.As(err, &unknown):
		return newFailure(atoll.ReasonServerNotVerified, "the server shows the host key %s, which is not that of %s in known_hosts of the Secret: another server may answer; compare the fingerprint with its operator's before you replace the key", shown, host)
	}
	return newFailure(atoll.ReasonServerNotVerified, "the server shows the host certificate %s, which is not valid now for %s or of no @cert-authority in known_hosts of the Secret", shown, host)
}

// isAuthorityOnly reports whether every line of known_hosts with the key is one of a CA.
func (v *hostVerifier) isAuthorityOnly(address string, remote net.Addr, key ssh.PublicKey) bool {
	if _, isCertificate := key.(*ssh.Certificate); isCertificate {
		return false
	}
	return !slices.ContainsFunc(v.listKeys(address, remote), func(k knownhosts.KnownKey) bool {
		return bytes.Equal(k.Key.Marshal(), key.Marshal()) && !v.isAuthority(k)
	})
}

// listKeys lists the keys of known_hosts for the server, by a key that is none of them.
func (v *hostVerifier) listKeys(address string, remote net.Addr) []knownhosts.KnownKey {
	var unknown *knownhosts.KeyError
	if errors.As(v.check(address, remote, noKey{}), &unknown) {
		return unknown.Want
	}
	return nil
}

// isAuthority reports whether a line of known_hosts is one of a CA.
func (v *hostVerifier) isAuthority(k knownhosts.KnownKey) bool {
	return k.Line >= 1 && k.Line <= len(v.lines) && strings.HasPrefix(strings.TrimSpace(v.lines[k.Line-1]), "@cert-authority")
}

// orderAlgorithms puts those of known keys first, so that a server with several keys shows one that is known.
func (v *hostVerifier) orderAlgorithms(offered []string) []string {
	var first []string
	isPlain := func(a string) bool { return !slices.Contains(certificateAlgorithms, a) }
	plain := slices.DeleteFunc(slices.Clone(offered), func(a string) bool { return !isPlain(a) })
	for _, k := range v.listKeys(v.address, &net.TCPAddr{IP: net.IPv4zero}) {
		if v.isAuthority(k) {
			first = append(first, certificateAlgorithms...)
			continue
		}
		first = append(first, algorithmsOfKey(k.Key.Type())...)
	}
	var out []string
	for _, a := range slices.Concat(first, plain) {
		if slices.Contains(offered, a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// noKey is a key that no server has.
type noKey struct{}

// Type returns a type that there is not.
func (noKey) Type() string { return "none" }

// Marshal returns no bytes.
func (noKey) Marshal() []byte { return nil }

// Verify verifies nothing.
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }
