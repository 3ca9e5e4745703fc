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

	"atoll.dev/atoll/internal/lab"
)

// Names in a store's directory: what its clients show and trust.
const (
	StoreCA         = "ca.crt"
	StoreClientCert = "client.crt"
	StoreClientKey  = "client.key"
)

// RunStore runs a plain etcd in dir, on a port of that address of the machine, until ctx
// ends, for hubs that share one. It takes only clients that show the certificate which it leaves in dir;
// dir/ready says that it serves, as a member's does. It changes the working
// directory, so that a process runs one.
func RunStore(ctx context.Context, dir, address string, port int) error {
	ip := net.ParseIP(address)
	if dir == "" || port == 0 || ip == nil {
		return errors.New("an etcd needs --dir, --port, and an IP address as --address")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := os.Remove(lab.MemberReady); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	// As the hub's embedded etcd has them: entries are as large as what was written, and
	// upstream's ten thousand of them can be a gigabyte.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, 500
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{"stderr"}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd in %s did not start; if another process uses the directory or the port, end it: %w", dir, err)
	}
	defer server.Close()
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
