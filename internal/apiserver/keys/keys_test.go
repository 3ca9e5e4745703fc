package keys

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoadOrCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	var missing *MissingError
	if _, err := LoadOrCreate(dir, false); !errors.As(err, &missing) {
		t.Fatalf("made keys that it may not make: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it made the directory of keys that it may not make")
	}
	first, err := LoadOrCreate(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string][]byte{}
	for _, name := range KeyFiles() {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		before[name] = content
	}
	second, err := LoadOrCreate(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if first.KeyFingerprint() != second.KeyFingerprint() || !bytes.Equal(first.HubKey, second.HubKey) {
		t.Error("loading made another set")
	}
	for name, content := range before {
		if after, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(after, content) {
			t.Errorf("%s was rewritten: %v", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(KeyFiles()) {
		t.Errorf("the directory holds %d files, not %d: %v", len(entries), len(KeyFiles()), err)
	}
	other, err := LoadOrCreate(t.TempDir(), true)
	if err != nil || other.KeyFingerprint() == first.KeyFingerprint() {
		t.Errorf("two sets are alike: %v", err)
	}
}

func TestCreationIsFinishedAfterACrash(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadOrCreate(dir, true); err != nil {
		t.Fatal(err)
	}
	// A crash can come between any two files; a key without its certificate is
	// the delicate one.
	if err := os.Remove(filepath.Join(dir, "cluster-ca.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreate(dir, true); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedKeysAreRefused(t *testing.T) {
	for _, name := range KeyFiles() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := LoadOrCreate(dir, true); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte("garbage"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadOrCreate(dir, true)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "garbage") {
				t.Errorf("the error shows key material: %v", err)
			}
		})
	}
}

func TestIssue(t *testing.T) {
	set, err := LoadOrCreate(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	certPEM, keyPEM, err := set.AgentCA.IssueCertificate(Request{CommonName: "atoll:cluster:1", Organization: []string{"atoll:agents"}, NotBefore: now, Lifetime: 30 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certPEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if cert.NotAfter.After(set.AgentCA.Cert.NotAfter) {
		t.Error("the certificate outlives its authority")
	}
	verify := func(pool *x509.CertPool) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
	if err := verify(set.AgentCA.CertPool()); err != nil {
		t.Error(err)
	}
	if verify(set.ClusterCA.CertPool()) == nil {
		t.Error("an agent's certificate passes at the API server")
	}
	if !bytes.Contains(keyPEM, []byte("EC PRIVATE KEY")) {
		t.Error("no key")
	}
	if _, _, err := set.AgentCA.IssueCertificate(Request{CommonName: "x"}); err == nil {
		t.Error("issued a certificate without a lifetime")
	}
}
