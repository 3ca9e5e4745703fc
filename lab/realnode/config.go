package realnode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const (
	containerdConfig = "containerd.toml"
	kubeletConfig    = "kubelet.yaml"
	networkDir       = "network"
	kubeconfigFile   = "kubeconfig"
	caFile           = "ca.crt"

	// snapshotterName is a snapshotter that copies files, which every file system
	// supports.
	snapshotterName = "native"
	// maxPods is the number of addresses in a subnet, without its first, its last and the
	// node's.
	maxPods = 61
)

// writeConfigs writes the configuration files of the programs.
func (o NodeOptions) writeConfigs() error {
	if err := os.MkdirAll(filepath.Join(o.Dir, networkDir), 0o700); err != nil {
		return fmt.Errorf("the node's directory: %w", err)
	}
	network, err := json.MarshalIndent(o.cniNetworkConfig(), "", "  ")
	if err != nil {
		return err
	}
	kubelet, err := yaml.Marshal(o.kubeletConfig())
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("the member's kubeconfig: %w", err)
	}
	ca, err := os.ReadFile(o.CAFile)
	if err != nil {
		return fmt.Errorf("the authority of the member's clients: %w", err)
	}
	for name, data := range map[string][]byte{
		kubeconfigFile: kubeconfig, caFile: ca,
		containerdConfig: []byte(containerdTOML()),
		kubeletConfig:    kubelet,
		filepath.Join(networkDir, "pods.conflist"): network,
	} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), data, 0o600); err != nil {
			return fmt.Errorf("configure the node: %w", err)
		}
	}
	return nil
}

// containerdTOML returns containerd's configuration. The out-of-memory score is restricted,
// because some machines do not let even root lower it.
func containerdTOML() string {
	return fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"

[grpc]
  address = %q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = %q
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = %q
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
`, filepath.Join(ownDir, "containerd"), containerdSocket, snapshotterName, sandboxImage, ownPrograms, filepath.Join(ownDir, networkDir))
}

// cniNetworkConfig returns the network of pods: a pair of devices for each, and a route of the
// machine to it. The record of addresses ends with the node, as its pods do.
func (o NodeOptions) cniNetworkConfig() any {
	return map[string]any{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []any{map[string]any{
			"type": "ptp",
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/addresses",
				"ranges": []any{[]any{map[string]any{"subnet": PodSubnet(o.Port).String(), "gateway": nodeAddress(o.Port).String()}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}
}

// kubeletConfig returns the kubelet's configuration: it manages no cgroups except those of
// containers, evicts no pod, and does not change the machine's packet filters.
func (o NodeOptions) kubeletConfig() any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": nodeAddress(o.Port).String(), "healthzPort": 0, "readOnlyPort": 0,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": filepath.Join(ownDir, caFile)},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + o.cgroupParent(),
		"cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "failCgroupV1": false,
		"localStorageCapacityIsolation": false, "failSwapOn": false, "makeIPTablesUtilChains": false,
		"evictionHard":                map[string]any{"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100,
		"resolvConf":                  "", "clusterDomain": "cluster.local", "clusterDNS": []string{nodeAddress(o.Port).String()},
		"maxPods": maxPods,
	}
}

func (o NodeOptions) kubeletArgs() []string {
	labels := "lab.atoll.dev/real=true"
	if o.Region != "" {
		labels += ",topology.kubernetes.io/region=" + o.Region + ",topology.kubernetes.io/zone=" + o.Region + "a"
	}
	return []string{
		"--config=" + filepath.Join(ownDir, kubeletConfig),
		"--kubeconfig=" + filepath.Join(ownDir, kubeconfigFile),
		"--root-dir=" + filepath.Join(ownDir, "kubelet"),
		"--cert-dir=" + filepath.Join(ownDir, "kubelet", "pki"),
		"--hostname-override=" + o.Name,
		"--node-ip=" + nodeAddress(o.Port).String(),
		"--node-labels=" + labels,
		"--v=1",
	}
}
