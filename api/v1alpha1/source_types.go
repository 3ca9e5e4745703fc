package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source applies the objects of a directory of a Repository as templates on the hub, from where they go to
// clusters like objects that a person applied.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=src,path=sources,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Repository",type=string,JSONPath=`.spec.repository`
// +kubebuilder:printcolumn:name="Commit",type=string,JSONPath=`.status.shortCommit`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects.applied`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters.summary`
// +kubebuilder:printcolumn:name="Waits for",type=string,JSONPath=`.status.waitsFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Author",type=string,JSONPath=`.status.author`,priority=1
type Source struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SourceSpec   `json:"spec"`
	Status SourceStatus `json:"status,omitempty"`
}

// SourceSpec is what people state of a Source.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.placement) && has(self.placementRef))",message="placement and placementRef exclude each other: give one of them"
type SourceSpec struct {
	// Repository is the name of a Repository of the namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Repository string `json:"repository"`
	// Ref is what of the Repository is read.
	Ref SourceRef `json:"ref"`
	// Paths are the directories and files that are read, with the directories below. Default: the whole
	// repository.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Paths []string `json:"paths,omitempty"`
	// Exclude are patterns of files that are not read: * stands for any characters but /, and ** for any.
	// A pattern without / is for names in every directory.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Exclude []string `json:"exclude,omitempty"`
	// Build specifies how objects are made of the files of each path. Default: a directory with a kustomization.yaml is
	// built by Kustomize, one with a Chart.yaml is rendered as a Helm chart, and any other is read as it is.
	// +optional
	Build *SourceBuild `json:"build,omitempty"`
	// TargetNamespace is the namespace of objects that state none, and of the release of a Helm chart. Default:
	// the Source's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TargetNamespace string `json:"targetNamespace,omitempty"`
	// ServiceAccountName is the ServiceAccount of the Source's namespace on the hub that applies and
	// removes the objects. Its rights bound what the Source may do. The writer needs the verb impersonate on it.
	// Default atoll-sources.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// Placement chooses the clusters of the objects in the Source's namespace. Without placement and
	// placementRef, the policies and annotations of the hub place the objects.
	// +optional
	Placement *PlacementSpec `json:"placement,omitempty"`
	// PlacementRef names a Placement of the namespace in place of placement.
	// +optional
	PlacementRef *PlacementRef `json:"placementRef,omitempty"`
	// Variants are contents for some clusters, in place of the content of the spec. The first one whose targetCluster
	// selects a cluster is for it, and the content of the spec is for all other clusters.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Variants []SourceVariant `json:"variants,omitempty"`
	// Prune specifies what happens to an object that a commit drops. Remove removes it on the hub, and from there
	// in members. Keep leaves it. Default Remove.
	// +optional
	// +kubebuilder:default=Remove
	Prune SourcePrune `json:"prune,omitempty"`
	// Force takes fields over that a person or another Source owns. Default false: such an object is
	// refused, and both owners are reported.
	// +optional
	Force bool `json:"force,omitempty"`
	// Drift specifies what happens when others change or delete an object on the hub that the Source applied. Default: it is
	// reported.
	// +optional
	Drift *SourceDrift `json:"drift,omitempty"`
	// Suspend stops the Source. Nothing that runs is removed.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// SyncRequest is the time of a request to check the Repository now, and to apply every object again.
	// Each time is honoured once.
	// +optional
	SyncRequest *metav1.Time `json:"syncRequest,omitempty"`
}

// SourceRef is a branch, a tag or a commit of a git repository, a version of a chart of a Helm repository, or a tag, a digest or a
// version of an OCI repository.
//
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.commit), has(self.version), has(self.digest)].filter(x, x).size() == 1",message="give one of branch, tag, commit, version and digest"
// +kubebuilder:validation:XValidation:rule="!has(self.chart) || has(self.version)",message="chart needs a version: give * for the latest"
type SourceRef struct {
	// Branch is the name of a branch.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`
	// Tag is the name of a tag.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Tag string `json:"tag,omitempty"`
	// Commit is the full hash of a commit. The server must offer it.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{40}$`
	Commit string `json:"commit,omitempty"`
	// Chart is the name of a chart of a Helm repository.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$`
	// +kubebuilder:validation:MaxLength=250
	Chart string `json:"chart,omitempty"`
	// Version of the chart, or of the tags of an OCI repository: an exact one such as 1.4.2, or a range such as ">=1.4 <2", of which the latest is taken. An
	// asterisk stands for all versions but prereleases. A later version removes what it drops, as a commit does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`
	// Digest is that of the manifest of an artifact of an OCI repository.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`
}

// SourceBuild is how objects are made of files.
//
// +kubebuilder:validation:XValidation:rule="!has(self.helm) || !has(self.type) || self.type == 'Helm'",message="helm is for Helm charts: give the type Helm, or none"
type SourceBuild struct {
	// Type of each path: Plain, Kustomize or Helm. Default: found out of its files.
	// +optional
	Type SourceBuildType `json:"type,omitempty"`
	// Helm is how charts are rendered. One path at least must then be a chart.
	// +optional
	Helm *HelmBuild `json:"helm,omitempty"`
}

// SourceBuildType specifies how objects are made of a path.
// +kubebuilder:validation:Enum=Plain;Kustomize;Helm
type SourceBuildType string

// The ways in which objects are made of a path.
const (
	// BuildPlain reads YAML and JSON files.
	BuildPlain SourceBuildType = "Plain"
	// BuildKustomize builds a directory with a kustomization.
	BuildKustomize SourceBuildType = "Kustomize"
	// BuildHelm renders a directory with a Helm chart.
	BuildHelm SourceBuildType = "Helm"
)

// HelmBuild is how Helm charts are rendered. They are rendered without a cluster: lookup finds nothing, and no
// release is recorded.
type HelmBuild struct {
	// ReleaseName is the name of the release in templates. Default: the name of the Source.
	// +optional
	// +kubebuilder:validation:MaxLength=53
	ReleaseName string `json:"releaseName,omitempty"`
	// ValuesFiles are files of the repository with values, by their paths from its root. A later file goes before
	// an earlier one.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// ValuesFrom are keys of ConfigMaps and Secrets of the namespace on the hub with values. A later one goes before an
	// earlier one, and all go before those of files. The ServiceAccount of the Source needs the right to get them. A change
	// of the values makes a new rendering.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	ValuesFrom []ValuesReference `json:"valuesFrom,omitempty"`
	// Values go before those of valuesFrom and of all files.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Values *apiextensionsv1.JSON `json:"values,omitempty"`
	// KubeVersion is the version of Kubernetes that templates see, such as 1.34. Default: that of the hub.
	// +optional
	// +kubebuilder:validation:Pattern=`^v?[0-9]+\.[0-9]+(\.[0-9]+)?$`
	// +kubebuilder:validation:MaxLength=32
	KubeVersion string `json:"kubeVersion,omitempty"`
	// APIVersions are versions of APIs that templates see as served, such as monitoring.coreos.com/v1, in addition to
	// those of Kubernetes. A kind may follow: monitoring.coreos.com/v1/ServiceMonitor.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +listType=set
	APIVersions []string `json:"apiVersions,omitempty"`
	// Hooks specifies what happens to the hooks of an install, an upgrade or a deletion. Run lets clusters run them. Refuse
	// refuses the content. Omit leaves them out, and counts them in status.objects.omitted. Hooks of tests and rollbacks
	// alone are always left out. Default Run.
	// +optional
	// +kubebuilder:default=Run
	Hooks HelmHooks `json:"hooks,omitempty"`
}

// ValuesReference names a key of a ConfigMap or a Secret with values of charts.
type ValuesReference struct {
	// Kind is ConfigMap or Secret.
	Kind ValuesKind `json:"kind"`
	// Name of the ConfigMap or the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key whose text is YAML with values. Default values.yaml.
	// +optional
	// +kubebuilder:default="values.yaml"
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
	// Optional lets the Source go on without the key. Default false: while the key does not exist, no commit is applied,
	// and what runs stays.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// ValuesKind is a kind of objects with values of charts.
// +kubebuilder:validation:Enum=ConfigMap;Secret
type ValuesKind string

// The kinds of objects with values of charts.
const (
	ValuesOfConfigMap ValuesKind = "ConfigMap"
	ValuesOfSecret    ValuesKind = "Secret"
)

// DefaultValuesKey is the key of a ValuesReference that states none.
const DefaultValuesKey = "values.yaml"

// HelmHooks specifies what happens to the hooks of an install, an upgrade or a deletion.
// +kubebuilder:validation:Enum=Run;Refuse;Omit
type HelmHooks string

// The treatments of hooks.
const (
	HooksRun    HelmHooks = "Run"
	HooksRefuse HelmHooks = "Refuse"
	HooksOmit   HelmHooks = "Omit"
)

// SourceVariant is the content for some clusters. Without paths, helm, patches and exclude it is the content of the spec.
//
// +kubebuilder:validation:XValidation:rule="!has(self.exclude) || !self.exclude || !(has(self.paths) || has(self.helm) || has(self.patches))",message="exclude leaves everything out: give no paths, helm or patches with it"
// +kubebuilder:validation:XValidation:rule="has(self.targetCluster.labelSelector) || has(self.targetCluster.fieldSelector) || has(self.targetCluster.clusterNames) || has(self.targetCluster.exclude) || has(self.targetCluster.clusterSets) || has(self.targetCluster.celSelector)",message="targetCluster selects no clusters: the content of the spec is for all others already"
type SourceVariant struct {
	// Name of the variant.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// TargetCluster selects the clusters, as that of an override rule does. It states one field at least.
	TargetCluster ClusterTarget `json:"targetCluster"`
	// Exclude leaves all objects out of the clusters.
	// +optional
	Exclude bool `json:"exclude,omitempty"`
	// Paths are read in place of those of the spec.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Paths []string `json:"paths,omitempty"`
	// Helm is values of charts, which go before those of build.helm.
	// +optional
	Helm *VariantValues `json:"helm,omitempty"`
	// Patches change objects of the variant. Each is a part of one object, with its apiVersion, kind and name. Objects of
	// built-in kinds are changed by a strategic merge, those of other kinds by a JSON merge patch.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	// +listType=atomic
	Patches []apiextensionsv1.JSON `json:"patches,omitempty"`
}

// VariantValues is values of Helm charts for a variant.
//
// +kubebuilder:validation:MinProperties=1
type VariantValues struct {
	// ValuesFiles are files of the repository with values, by their paths from its root. A later file goes before
	// an earlier one, and all go before build.helm.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// ValuesFrom are keys of ConfigMaps of the namespace on the hub with values, which go before valuesFiles. Secrets are
	// refused, because what variants differ by is in OverridePolicies.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	ValuesFrom []ValuesReference `json:"valuesFrom,omitempty"`
	// Values go before those of valuesFrom and of all files.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Values *apiextensionsv1.JSON `json:"values,omitempty"`
}

// SourcePrune specifies what happens to objects that a commit drops.
// +kubebuilder:validation:Enum=Remove;Keep
type SourcePrune string

// The treatments of objects that a commit drops.
const (
	PruneRemove SourcePrune = "Remove"
	PruneKeep   SourcePrune = "Keep"
)

// DefaultSourceAccount is the ServiceAccount of Sources that name none.
const DefaultSourceAccount = "atoll-sources"

// LabelSource is the label of objects on the hub that a Source applied. Its value is the name of the Source.
const LabelSource = "atoll.dev/source"

// Condition types of a Source.
const (
	// SourceRendered is false while the content cannot be read. Nothing is removed then.
	SourceRendered = "Rendered"
	// SourceApplied is false while an object of the commit is not applied on the hub.
	SourceApplied = "Applied"
	// SourceReady is true when every cluster of the objects runs them, and they are healthy.
	SourceReady = "Ready"
	// SourceReproducible is false while a chart makes values by itself in each rendering, such as a random password. The
	// hub keeps those that it has. The condition is not there otherwise.
	SourceReproducible = "Reproducible"
	// SourceInSync is false while others have changed or deleted an object on the hub since the Source applied it.
	SourceInSync = "InSync"
)

// SourceVerified is a commit, or the version of a chart or an artifact, whose signature was verified.
type SourceVerified struct {
	// Commit that was verified, by itself or by its tag. For a chart or an artifact it has the form of status.commit.
	Commit string `json:"commit"`
	// Signer is the key that signed it, such as "ssh-ed25519 SHA256:...", "OpenPGP FINGERPRINT" or "ECDSA sha256:...". The signer of a
	// tag comes first.
	Signer string `json:"signer"`
}

// SourceStatus is the observed state of a Source.
type SourceStatus struct {
	// ObservedGeneration of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Commit that was applied in whole last. For a chart of a Helm repository it is CHART:VERSION@DIGEST, where the digest is
	// that of the archive, or of the manifest in a registry. For an artifact it is TAG@DIGEST, or the digest alone.
	// +optional
	Commit string `json:"commit,omitempty"`
	// ShortCommit is the first 12 digits of the commit, or the version of a chart, or the tag of an artifact, with 12 digits of its digest.
	// +optional
	ShortCommit string `json:"shortCommit,omitempty"`
	// Message is the first line of the commit's message.
	// +optional
	Message string `json:"message,omitempty"`
	// Author of the commit.
	// +optional
	Author string `json:"author,omitempty"`
	// Verified is the signature that was verified last, where the Repository states verify.
	// +optional
	Verified *SourceVerified `json:"verified,omitempty"`
	// Objects counts the objects.
	// +optional
	Objects SourceObjects `json:"objects,omitempty"`
	// Builds are the paths that Kustomize or Helm made objects of, in the content that was read last.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Builds []SourceBuilt `json:"builds,omitempty"`
	// Clusters of the objects.
	// +optional
	Clusters SourceClusters `json:"clusters,omitempty"`
	// WaitsFor is what the Source waits for, in a few words; empty when it is complete.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// Errors are the first 20 problems of the content, with file and line.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Errors []SourceError `json:"errors,omitempty"`
	// Drift is the objects that others changed or deleted, the first 20.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Drift []ChangedObject `json:"drift,omitempty"`
	// Digest of the content and the settings that the objects on the hub come from.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Settings is a digest of what of the spec decided which objects there are when a commit was applied last,
	// in whole or in part.
	// +optional
	Settings string `json:"settings,omitempty"`
	// ValuesDigest is a digest of the values of valuesFrom in the content that was read last.
	// +optional
	ValuesDigest string `json:"valuesDigest,omitempty"`
	// AttemptedCommit is the commit that was applied last, in whole or in part.
	// +optional
	AttemptedCommit string `json:"attemptedCommit,omitempty"`
	// SeenCommit is the last commit that changed something for the Source, also one that is refused.
	// +optional
	SeenCommit string `json:"seenCommit,omitempty"`
	// CommitStatus is what was reported to the git server, where the Repository states commitStatus.
	// +optional
	CommitStatus *SourceCommitStatus `json:"commitStatus,omitempty"`
	// SyncRequest that was honoured last.
	// +optional
	SyncRequest *metav1.Time `json:"syncRequest,omitempty"`
	// Inventory is the objects that the Source applied. At most 2,000.
	// +optional
	// +kubebuilder:validation:MaxItems=2000
	Inventory []SourceObject `json:"inventory,omitempty"`
	// Conditions: Rendered, Applied, InSync, Ready, and Reproducible where a chart makes values by itself.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SourceObjects counts the objects of a Source.
type SourceObjects struct {
	// Total is the number of objects in the content that was read last.
	// +optional
	Total int32 `json:"total,omitempty"`
	// Applied is the number of objects on the hub that are as in the commit.
	// +optional
	Applied int32 `json:"applied,omitempty"`
	// Kept is the number of objects that the content no longer has and that stay.
	// +optional
	Kept int32 `json:"kept,omitempty"`
	// Drifted is the number of objects that others have changed or deleted on the hub.
	// +optional
	Drifted int32 `json:"drifted,omitempty"`
	// Omitted is the number of hooks of charts that build.helm.hooks leaves out.
	// +optional
	Omitted int32 `json:"omitted,omitempty"`
}

// SourceBuilt is a path that objects were made of.
type SourceBuilt struct {
	// Path in the repository; a dot for its root.
	Path string `json:"path"`
	// Type is Kustomize or Helm.
	Type SourceBuildType `json:"type"`
	// Chart is the name and the version of a Helm chart.
	// +optional
	Chart string `json:"chart,omitempty"`
}

// SourceClusters counts the clusters of a Source's objects. A cluster counts once for each Bundle.
type SourceClusters struct {
	// Desired clusters.
	// +optional
	Desired int32 `json:"desired,omitempty"`
	// Ready clusters run the objects, and the objects are healthy.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Summary is "ready/desired", for the table that kubectl prints.
	// +optional
	Summary string `json:"summary,omitempty"`
}

// SourceError is a problem of the content, or of one object.
type SourceError struct {
	// File in the repository.
	// +optional
	File string `json:"file,omitempty"`
	// Line of the file, from 1.
	// +optional
	Line int32 `json:"line,omitempty"`
	// Message is what is wrong.
	Message string `json:"message"`
}

// SourceObject is one object that a Source applied on the hub.
type SourceObject struct {
	// APIVersion of the object.
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	Kind string `json:"kind"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
	// Hash of what was applied; empty until the object is applied.
	// +optional
	Hash string `json:"hash,omitempty"`
	// UID of the object that the Source created; empty for an object that existed before, or that others made
	// again. A commit that drops the object removes this one, and no other.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Fields is a hash of which fields the Source owned after it applied the object; empty where it is not known.
	// +optional
	Fields string `json:"fields,omitempty"`
	// Drift is the same hash as it was when the object was found to differ, or gone; empty while the object is as applied.
	// +optional
	Drift string `json:"drift,omitempty"`
	// Kept is why the object stays although the content no longer has it; empty for objects of the content.
	// +optional
	Kept string `json:"kept,omitempty"`
}

// SourceList is a list of Sources.
//
// +kubebuilder:object:root=true
type SourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Source `json:"items"`
}
