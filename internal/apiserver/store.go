package apiserver

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/apiserver/keys"
)

const (
	keysDir = "keys"
	etcdDir = "etcd"
	// keySetKey holds the fingerprint of the key set that an etcd's content
	// was written with. It lies outside of the prefix that the API server uses.
	keySetKey = "/atoll.dev/keyset"
	// versionKey holds the newest version of Atoll that has run on an etcd.
	versionKey = "/atoll.dev/version"
)

// storeTimeout bounds requests to etcd before the API server is.
const storeTimeout = 20 * time.Second

// store is the etcd below the server, embedded or not.
type store struct {
	embedded *etcd.EmbeddedEtcd
	// space observes the room in it.
	space  spaceObserver
	client *clientv3.Client
	// kv is for what is written and read most: of an embedded etcd without a connection.
	kv        clientv3.KV
	endpoints []string
}

// etcdFailures reports that the embedded etcd has ended; of an external one, clients detect the end
// by themselves.
func (s *store) etcdFailures() <-chan error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Failures()
}

// openStore loads the key set and connects to etcd, and makes sure that the two
// belong together.
func (s *Server) openStore(ctx context.Context) error {
	o := s.options
	hasData := false
	if len(o.EtcdServers) == 0 {
		var err error
		if hasData, err = etcd.HasEtcdData(s.dir.FilePath(etcdDir)); err != nil {
			return fmt.Errorf("look into %s: %w", s.dir.FilePath(etcdDir), err)
		}
	}
	dir, mayCreate := o.KeysDir, false
	if dir == "" {
		dir, mayCreate = s.dir.FilePath(keysDir), !hasData
	}
	set, err := keys.LoadOrCreate(dir, mayCreate)
	if err != nil {
		return err
	}
	s.keys = set
	if s.store, err = s.startOrConnectEtcd(ctx); err != nil {
		return err
	}
	if err := s.store.bindKeySet(ctx, set); err != nil {
		return err
	}
	if err := s.store.checkVersion(ctx, o.Version); err != nil {
		return err
	}
	return s.loadAuthorities(ctx)
}

func (s *Server) startOrConnectEtcd(ctx context.Context) (*store, error) {
	if len(s.options.EtcdServers) > 0 {
		return s.connectExternalEtcd(ctx)
	}
	e, err := etcd.Start(ctx, etcd.Options{
		Dir:           s.dir.FilePath(etcdDir),
		Logger:        s.options.Logger.With("component", "etcd"),
		QuotaBytes:    s.options.EtcdQuotaBytes,
		UnsafeNoFsync: s.options.UnsafeNoFsync,
	})
	if err != nil {
		return nil, err
	}
	s.onStop(func(context.Context) { e.Stop() })
	if s.options.Metrics != nil {
		if err := etcd.RegisterMetrics(s.options.Metrics, e.Space); err != nil {
			return nil, fmt.Errorf("register the metrics of the store: %w", err)
		}
	}
	client, err := e.NewClient(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	s.onStop(func(context.Context) { client.Close() })
	e.StartMaintenance(client)
	return &store{embedded: e, space: e, client: client, kv: e.KV(), endpoints: []string{e.ClientEndpoint()}}, nil
}

func (s *Server) connectExternalEtcd(ctx context.Context) (*store, error) {
	o := s.options
	config := clientv3.Config{
		Endpoints:   o.EtcdServers,
		DialTimeout: storeTimeout,
		Context:     context.WithoutCancel(ctx),
		Logger:      zap.NewNop(),
	}
	if o.EtcdCAFile != "" || o.EtcdCertFile != "" {
		info := transport.TLSInfo{TrustedCAFile: o.EtcdCAFile, CertFile: o.EtcdCertFile, KeyFile: o.EtcdKeyFile}
		tlsConfig, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("load etcd client certificates: %w", err)
		}
		config.TLS = tlsConfig
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", o.EtcdServers, err)
	}
	s.onStop(func(context.Context) { client.Close() })
	space := etcd.NewExternal(client, o.EtcdServers, o.Logger.With("component", "etcd"))
	if o.Metrics != nil {
		if err := etcd.RegisterMetrics(o.Metrics, space.Space); err != nil {
			return nil, fmt.Errorf("register the metrics of the store: %w", err)
		}
	}
	s.observeExternalSpace(context.WithoutCancel(ctx), space)
	return &store{space: space, client: client, kv: client, endpoints: o.EtcdServers}, nil
}

// observeExternalSpace observes the room of an external etcd until the server stops.
func (s *Server) observeExternalSpace(ctx context.Context, space *etcd.ExternalEtcd) {
	ctx, cancel := context.WithCancel(ctx)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		space.Run(ctx)
	}()
	s.onStop(func(context.Context) {
		cancel()
		<-finished
	})
}

// bindKeySet refuses a key set that is not the one which the content of this
// etcd was written with: tokens and Secrets would not be readable.
func (s *store) bindKeySet(ctx context.Context, set *keys.KeySet) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	mine := set.KeyFingerprint()
	theirs, err := s.getOrCreate(ctx, keySetKey, mine)
	if err != nil {
		return fmt.Errorf("compare the key set with the one that etcd at %v belongs to: %w", s.endpoints, err)
	}
	if theirs != mine {
		return fmt.Errorf("the key set in %s is not the one that the data in etcd at %v was written with; bring the one of the hub that wrote it: atoll-hub backup there, atoll-hub restore here", set.Dir, s.endpoints)
	}
	return nil
}

// getOrCreate returns the value of the key, which it writes where there is none. It reads first,
// because a full etcd refuses each transaction that could write.
func (s *store) getOrCreate(ctx context.Context, key, value string) (string, error) {
	got, err := s.client.Get(ctx, key)
	if err != nil {
		return "", err
	}
	if len(got.Kvs) > 0 {
		return string(got.Kvs[0].Value), nil
	}
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil || resp.Succeeded {
		return value, err
	}
	return string(resp.Responses[0].GetResponseRange().Kvs[0].Value), nil
}

// checkVersion refuses an etcd on which a newer version has run: another hub may have stored in it
// what this one does not support.
func (s *store) checkVersion(ctx context.Context, running string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	resp, err := s.client.Get(ctx, versionKey)
	if err != nil {
		return fmt.Errorf("read which version has written the data in etcd at %v: %w", s.endpoints, err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	return datadir.CheckVersion(fmt.Sprintf("the data in etcd at %v", s.endpoints), string(resp.Kvs[0].Value), running)
}

// recordRunningVersion records the running version, which checkVersion has let pass.
func (s *store) recordRunningVersion(ctx context.Context, running string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	recorded, err := s.getOrCreate(ctx, versionKey, running)
	if err == nil && recorded != running {
		_, err = s.client.Put(ctx, versionKey, running)
	}
	if err != nil {
		return fmt.Errorf("record in etcd at %v which version runs: %w", s.endpoints, err)
	}
	return nil
}
