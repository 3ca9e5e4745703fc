package member

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"

	"go.etcd.io/etcd/server/v3/embed"

	"atoll.dev/atoll/lab"
)

// Names in a store's directory: the credentials of its clients.
const (
	StoreCA         = "ca.crt"
	StoreClientCert = "client.crt"
	StoreClientKey  = "client.key"
)

// RunSharedEtcd runs a plain etcd in dir for hubs that share one, at an address and port of the
// machine, until ctx ends. It accepts only clients with the certificate that it writes into
// dir. dir/ready shows that it serves, as for a member. It changes the working directory,
// so a process runs one.
func RunSharedEtcd(ctx context.Context, dir, address string, port int) error {
	ip := net.ParseIP(address)
	if dir == "" || port == 0 || ip == nil {
		return errors.New("an etcd needs --dir, --port, and an IP address as --address")
	}
	if err := enterDataDir(dir); err != nil {
		return err
	}
	if err := ensureStorePKI(".", ip); err != nil {
		return err
	}
	client := url.URL{Scheme: "https", Host: net.JoinHostPort(ip.String(), strconv.Itoa(port))}
	peer := url.URL{Scheme: "unix", Host: etcdPeerSocket}
	cfg := embed.NewConfig()
	cfg.Name = "store"
	cfg.Dir = "etcd"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = "server.crt", "server.key"
	cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = StoreCA, true
	cfg.UnsafeNoFsync = true
	// The same values as in the hub's embedded etcd: entries are as large as the written
	// objects, and upstream's ten thousand of them can be a gigabyte.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, 500
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{"stderr"}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd in %s did not start; if another process uses the directory or the port, end it: %w", dir, err)
	}
	defer server.Close()
	return superviseEtcd(ctx, server, dir)
}

// enterDataDir makes the directory if it is missing, works in it, and removes the sign that a former run served.
func enterDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := os.Remove(lab.MemberReady); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// superviseEtcd shows when the etcd serves, and waits until it stops or ctx ends.
func superviseEtcd(ctx context.Context, server *embed.Etcd, dir string) error {
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return fmt.Errorf("etcd in %s stopped while starting: %w", dir, err)
	case <-ctx.Done():
		return nil
	}
	if err := writeFile(lab.MemberReady, []byte(strconv.Itoa(os.Getpid()))); err != nil {
		return err
	}
	select {
	case err := <-server.Err():
		return fmt.Errorf("etcd in %s stopped: %w", dir, err)
	case <-ctx.Done():
		return nil
	}
}

func ensureStorePKI(dir string, address net.IP) error {
	ca, err := ensureAuthority(dir, "ca", "atoll-lab-store")
	if err != nil {
		return err
	}
	if _, _, err := ca.ensureLeaf(dir, "server", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "etcd"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{address},
	}); err != nil {
		return err
	}
	_, _, err = ca.ensureLeaf(dir, "client", &x509.Certificate{
		Subject: pkix.Name{CommonName: "hub"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
