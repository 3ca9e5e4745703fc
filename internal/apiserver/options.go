package apiserver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"

	"atoll.dev/atoll/internal/apiserver/datadir"
)

const (
	// issuer names the hub in service account tokens. It is the same on every
	// hub, so that hubs of one etcd accept each other's tokens.
	issuer = "https://kubernetes.default.svc.cluster.local"
	// serviceRange is the range that upstream requires. Services get their addresses from allocators.
	serviceRange       = "10.0.0.0/24"
	frontProxyUser     = "atoll-front-proxy"
	compactionExternal = time.Minute
)

// disabledAdmission would act on templates as if they were to run here.
var disabledAdmission = []string{
	"DefaultIngressClass",
	"DefaultStorageClass",
	"DefaultTolerationSeconds",
	"NodeDeclaredFeatureValidator",
	"PersistentVolumeClaimResize",
	"PodGroupProtection",
	"PodGroupWorkloadExists",
	"PodResizeValidator",
	"PodTopologyLabels",
	"Priority",
	"RuntimeClass",
	"ServiceAccount",
	"StorageObjectInUseProtection",
	"TaintNodesByCondition",
}

// disabledFeatures serve clusters of several API servers that differ in
// version, at the price of leases that are written all the time; and read all of
// every kind again every few minutes, to compare it with the watch cache.
var disabledFeatures = map[string]bool{
	string(features.DetectCacheInconsistency):            false,
	string(features.APIServerIdentity):                   false,
	string(features.UnknownVersionInteroperabilityProxy): false,
}

// setFeatures changes the process-wide feature gates, which can be done only
// before an API server has been built.
var setFeatures = sync.OnceValue(func() error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(disabledFeatures); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
})

// upstreamOptions states the options of the linked kube-apiserver.
func (s *Server) upstreamOptions(ctx context.Context, listener net.Listener) (kubeapiserver.CompletedOptions, error) {
	none := kubeapiserver.CompletedOptions{}
	if err := setFeatures(); err != nil {
		return none, err
	}
	o := kubeapiserver.NewServerRunOptions()
	o.GenericServerRunOptions.AdvertiseAddress = net.ParseIP(s.options.AdvertiseAddress)
	o.GenericServerRunOptions.ShutdownSendRetryAfter = false
	o.ServiceClusterIPRanges = serviceRange
	o.EndpointReconcilerType = string(reconcilers.NoneEndpointReconcilerType)
	o.AllowPrivileged = true
	o.Features.EnableProfiling = s.options.Profiling
	o.SystemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, metav1.NamespaceDefault}

	o.SecureServing.BindAddress = net.ParseIP(s.options.BindAddress)
	o.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	o.SecureServing.Listener = listener
	s.setServingCert(o)
	if err := s.setStorage(o); err != nil {
		return none, err
	}
	s.setAuthentication(o)
	o.Authorization.Modes = []string{modes.ModeRBAC}
	o.Audit.PolicyFile = s.options.AuditPolicyFile
	o.Audit.LogOptions.Path = s.options.AuditLogPath
	s.setAdmission(o)

	registry := o.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return none, fmt.Errorf("settle component versions: %w", err)
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return none, fmt.Errorf("complete API server options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return none, fmt.Errorf("API server options: %w", utilerrors.NewAggregate(errs))
	}
	return completed, nil
}

func (s *Server) setStorage(o *kubeapiserver.ServerRunOptions) error {
	c := &o.Etcd.StorageConfig
	c.Transport.ServerList = s.store.endpoints
	c.Transport.TrustedCAFile = s.options.EtcdCAFile
	c.Transport.CertFile = s.options.EtcdCertFile
	c.Transport.KeyFile = s.options.EtcdKeyFile
	c.CompactionInterval = 0
	if s.store.embedded == nil {
		c.CompactionInterval = compactionExternal
	}
	o.Etcd.EncryptionProviderConfigFilepath = s.options.EncryptionProviderConfig
	if o.Etcd.EncryptionProviderConfigFilepath != "" {
		return nil
	}
	path := s.dir.FilePath("encryption.yaml")
	o.Etcd.EncryptionProviderConfigFilepath = path
	return datadir.WriteFileAtomically(path, encryptionConfig(s.keys.EncryptionKey), 0o600)
}

func (s *Server) setAuthentication(o *kubeapiserver.ServerRunOptions) {
	a := o.Authentication
	a.ClientCert.ClientCA = s.dir.FilePath(clientCAFile)
	a.BootstrapToken.Enable = true
	a.AuthenticationConfigFile = s.options.AuthenticationConfig
	a.ServiceAccounts.Issuers = []string{issuer}
	a.ServiceAccounts.KeyFiles = []string{s.keys.ServiceAccountKeyFile}
	o.ServiceAccountSigningKeyFile = s.keys.ServiceAccountKeyFile
	a.RequestHeader.ClientCAFile = s.keys.FrontProxyCA.CertFile
	a.RequestHeader.AllowedNames = []string{frontProxyUser}
	a.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
	a.RequestHeader.UIDHeaders = []string{"X-Remote-Uid"}
	a.RequestHeader.GroupHeaders = []string{"X-Remote-Group"}
	a.RequestHeader.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	o.ProxyClientCertFile, o.ProxyClientKeyFile = s.dir.FilePath(frontProxyFile), s.dir.FilePath(frontProxyFile)
}

func (s *Server) setAdmission(o *kubeapiserver.ServerRunOptions) {
	a := o.Admission.GenericAdmission
	known := sets.New(a.RecommendedPluginOrder...)
	for _, name := range disabledAdmission {
		if known.Has(name) {
			a.DisablePlugins = append(a.DisablePlugins, name)
		}
	}
	plugins := append(s.builtinAdmission(), s.options.Admission...)
	names := make([]string, 0, len(plugins))
	for _, p := range plugins {
		p.register(a.Plugins)
		names = append(names, p.Name)
	}
	// Quota counts what is really stored, so it stays behind ours.
	at := slices.Index(a.RecommendedPluginOrder, "ResourceQuota")
	a.RecommendedPluginOrder = slices.Insert(slices.Clone(a.RecommendedPluginOrder), at, names...)
}
