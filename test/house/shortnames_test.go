package house

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// peerShortNames lists the short names that other APIs serve, by project, each with the kind that
// has it. A hub and the tools of its users can serve or read any of them beside Atoll's kinds.
var peerShortNames = map[string]map[string]string{
	"Kubernetes": {
		"po": "Pod", "svc": "Service", "ep": "Endpoints", "rc": "ReplicationController", "rs": "ReplicaSet", "deploy": "Deployment",
		"sts": "StatefulSet", "ds": "DaemonSet", "cj": "CronJob", "hpa": "HorizontalPodAutoscaler", "pdb": "PodDisruptionBudget",
		"ns": "Namespace", "no": "Node", "pv": "PersistentVolume", "pvc": "PersistentVolumeClaim", "sc": "StorageClass", "vac": "VolumeAttributesClass",
		"sa": "ServiceAccount", "cm": "ConfigMap", "ev": "Event", "quota": "ResourceQuota", "limits": "LimitRange", "pc": "PriorityClass",
		"ing": "Ingress", "netpol": "NetworkPolicy", "ip": "IPAddress", "csr": "CertificateSigningRequest", "cs": "ComponentStatus",
		"crd": "CustomResourceDefinition", "crds": "CustomResourceDefinition",
	},
	"Karmada": {
		"pp": "PropagationPolicy", "cpp": "ClusterPropagationPolicy", "op": "OverridePolicy", "cop": "ClusterOverridePolicy",
		"rb": "ResourceBinding", "crb": "ClusterResourceBinding", "wk": "Work", "ric": "ResourceInterpreterCustomization",
		"fhpa": "FederatedHPA", "cronfhpa": "CronFederatedHPA", "mci": "MultiClusterIngress", "mcs": "MultiClusterService",
		"wr": "WorkloadRebalancer",
	},
	"Cluster API": {
		"cl": "Cluster", "cc": "ClusterClass", "ma": "Machine", "ms": "MachineSet", "md": "MachineDeployment", "mp": "MachinePool",
		"mhc": "MachineHealthCheck", "kcp": "KubeadmControlPlane", "ext": "ExtensionConfig",
	},
	"Open Cluster Management": {
		"mcl": "ManagedCluster", "mcls": "ManagedCluster", "mclset": "ManagedClusterSet", "mclsets": "ManagedClusterSet",
		"mclsetbinding": "ManagedClusterSetBinding", "mclsetbindings": "ManagedClusterSetBinding",
	},
	"Argo": {
		"app": "Application", "apps": "Application", "appset": "ApplicationSet", "appsets": "ApplicationSet", "appproj": "AppProject", "appprojs": "AppProject",
		"ro": "Rollout", "ar": "AnalysisRun", "at": "AnalysisTemplate", "cat": "ClusterAnalysisTemplate", "exp": "Experiment",
		"wf": "Workflow", "wftmpl": "WorkflowTemplate", "cwf": "CronWorkflow", "cronwf": "CronWorkflow", "cwft": "ClusterWorkflowTemplate",
		"clusterwftmpl": "ClusterWorkflowTemplate", "wfeb": "WorkflowEventBinding", "wfts": "WorkflowTaskSet", "wfat": "WorkflowArtifactGCTask",
		"es": "EventSource", "eb": "EventBus", "sn": "Sensor",
	},
	"Gateway API": {
		"gtw": "Gateway", "gc": "GatewayClass", "refgrant": "ReferenceGrant", "btlspolicy": "BackendTLSPolicy", "lset": "ListenerSet",
	},
	"kcp": {"ws": "Workspace"},
	"KubeFleet": {
		"crp": "ClusterResourcePlacement", "rp": "ResourcePlacement", "crpe": "ClusterResourcePlacementEviction",
		"crpdb": "ClusterResourcePlacementDisruptionBudget", "rss": "ClusterResourceSnapshot", "pss": "ClusterSchedulingPolicySnapshot",
	},
	"Kyverno": {"pol": "Policy", "cpol": "ClusterPolicy", "polex": "PolicyException", "polr": "PolicyReport", "cpolr": "ClusterPolicyReport"},
	"Cilium":  {"cnp": "CiliumNetworkPolicy", "ccnp": "CiliumClusterwideNetworkPolicy", "cep": "CiliumEndpoint", "cn": "CiliumNode"},
	"Flux":    {"ks": "Kustomization", "hr": "HelmRelease", "helmrepo": "HelmRepository", "gitrepo": "GitRepository", "ocirepo": "OCIRepository"},
}

// ownNames reads the names of the kinds that Atoll defines, by CRD.
func ownNames(t *testing.T) []apiextensionsv1.CustomResourceDefinitionNames {
	t.Helper()
	var out []apiextensionsv1.CustomResourceDefinitionNames
	for _, dir := range []string{"api/crds", "deploy/charts/atoll-agent/files"} {
		files, err := filepath.Glob(filepath.Join(root(), dir, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no CRDs in %s: %v", dir, err)
		}
		for _, file := range files {
			var crd apiextensionsv1.CustomResourceDefinition
			text, err := os.ReadFile(file)
			if err == nil {
				err = yaml.Unmarshal(text, &crd)
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if strings.HasSuffix("."+crd.Spec.Group, ".atoll.dev") {
				out = append(out, crd.Spec.Names)
			}
		}
	}
	return out
}

// kubectl resolves a short name that two groups serve to the one that discovery lists first. A
// user then reads or deletes another object than intended.
func TestShortNamesCollideWithNoPeer(t *testing.T) {
	owner := map[string]string{}
	for _, names := range ownNames(t) {
		for _, short := range names.ShortNames {
			for project, theirs := range peerShortNames {
				if kind, ok := theirs[short]; ok {
					t.Errorf("%s has the short name %q of %s's %s", names.Kind, short, project, kind)
				}
			}
			if other := owner[short]; other != "" {
				t.Errorf("%s and %s share the short name %q", names.Kind, other, short)
			}
			owner[short] = names.Kind
		}
	}
	for _, names := range ownNames(t) {
		for _, name := range []string{names.Plural, names.Singular} {
			if other := owner[name]; other != "" {
				t.Errorf("the short name %q of %s is a name of %s", name, other, names.Kind)
			}
		}
	}
	if len(owner) < 10 || slices.Contains(ownNames(t)[0].ShortNames, "") {
		t.Fatalf("read %d short names", len(owner))
	}
}

// TestKubectlChoosesOwnKinds holds that a resource name without a group means Atoll's kind, also
// where another group has the name. kubectl takes the first group of discovery, and the API server
// lists CRDs' groups, which have equal priority, by name.
func TestKubectlChoosesOwnKinds(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(), "api", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string][]string{}
	for _, file := range files {
		group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		groups[plural] = append(groups[plural], group)
	}
	if shared := groups["placementdecisions"]; len(shared) < 2 {
		t.Errorf("placementdecisions are in %q, and the page about extensions says that two groups have them", shared)
	}
	for plural, of := range groups {
		if first := slices.Min(of); len(of) > 1 && slices.Contains(of, "atoll.dev") && first != "atoll.dev" {
			t.Errorf("`kubectl get %s` means %s, not atoll.dev", plural, first)
		}
	}
}
