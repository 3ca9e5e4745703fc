package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SourceSet makes Sources of its namespace: one for each entry that its generators find, by one template.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=srcset,path=sourcesets,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Sources",type=integer,JSONPath=`.status.sources.generated`
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.sources.applied`
// +kubebuilder:printcolumn:name="Kept",type=integer,JSONPath=`.status.sources.kept`
// +kubebuilder:printcolumn:name="Waits for",type=string,JSONPath=`.status.waitsFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a SourceSet is the value of a label, which has at most 63 characters"
type SourceSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SourceSetSpec   `json:"spec"`
	Status SourceSetStatus `json:"status,omitempty"`
}

// SourceSetSpec is what people state of a SourceSet.
type SourceSetSpec struct {
	// Generators find the entries, each with parameters for the template. Every entry makes one Source.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	Generators []SourceGenerator `json:"generators"`
	// Template of the Sources.
	Template SourceTemplate `json:"template"`
	// Prune specifies what happens to a Source that is no longer generated while others of its generator are. Remove deletes
	// it; the objects that it applied stay on the hub and in clusters. Keep leaves the Source. Default Remove.
	// +optional
	// +kubebuilder:default=Remove
	Prune SourcePrune `json:"prune,omitempty"`
	// ServiceAccountName is the ServiceAccount of the namespace on the hub that writes and deletes the Sources. Its rights
	// bound which Sources can be made. The writer needs the verb impersonate on it. Default atoll-sources.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// Suspend stops the SourceSet. The Sources that it made stay and go on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SourceGenerator finds entries in one way.
//
// +kubebuilder:validation:XValidation:rule="[has(self.list), has(self.clusters), has(self.directories), has(self.files), has(self.matrix), has(self.merge)].filter(x, x).size() == 1",message="give one of list, clusters, directories, files, matrix and merge"
type SourceGenerator struct {
	// List has the entries themselves.
	// +optional
	List *ListGenerator `json:"list,omitempty"`
	// Clusters makes an entry of each Cluster that the namespace may place on.
	// +optional
	Clusters *ClustersGenerator `json:"clusters,omitempty"`
	// Directories makes an entry of each directory of a Repository that a pattern matches.
	// +optional
	Directories *TreeGenerator `json:"directories,omitempty"`
	// Files makes an entry of each YAML or JSON document in files of a Repository that a pattern matches.
	// +optional
	Files *TreeGenerator `json:"files,omitempty"`
	// Matrix combines each entry of one generator with each of another one.
	// +optional
	Matrix *MatrixGenerator `json:"matrix,omitempty"`
	// Merge adds parameters to the entries of its first generator.
	// +optional
	Merge *MergeGenerator `json:"merge,omitempty"`
}

// SourceEntryGenerator finds entries without other generators.
//
// +kubebuilder:validation:XValidation:rule="[has(self.list), has(self.clusters), has(self.directories), has(self.files)].filter(x, x).size() == 1",message="give one of list, clusters, directories and files"
type SourceEntryGenerator struct {
	// List has the entries themselves.
	// +optional
	List *ListGenerator `json:"list,omitempty"`
	// Clusters makes an entry of each Cluster that the namespace may place on.
	// +optional
	Clusters *ClustersGenerator `json:"clusters,omitempty"`
	// Directories makes an entry of each directory of a Repository that a pattern matches.
	// +optional
	Directories *TreeGenerator `json:"directories,omitempty"`
	// Files makes an entry of each YAML or JSON document in files of a Repository that a pattern matches.
	// +optional
	Files *TreeGenerator `json:"files,omitempty"`
}

// ListGenerator has the entries themselves.
type ListGenerator struct {
	// Elements are the parameters of the entries, each a map of up to 8 KiB.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:Type=object
	// +kubebuilder:validation:items:XPreserveUnknownFields
	// +listType=atomic
	Elements []apiextensionsv1.JSON `json:"elements"`
}

// ClustersGenerator makes an entry of each Cluster. The parameters are cluster.name and cluster.labels.
type ClustersGenerator struct {
	// LabelSelector over the labels of Clusters. Default: all Clusters that the namespace may place on, by its ClusterSets.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// TreeGenerator makes entries of a Repository. The parameters of a directory are path.path, path.basename,
// path.basenameNormalized and path.segments. Those of a file are the fields of its document, and path with the directory
// of the file, and path.filename.
type TreeGenerator struct {
	// Repository is the name of a Repository of the namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Repository string `json:"repository"`
	// Ref is what of the Repository is read.
	Ref SourceRef `json:"ref"`
	// Paths are patterns of whole paths from the root: * stands for any characters but /, and ** for any directories.
	// Names that begin with a dot are not matched.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Paths []string `json:"paths"`
	// Exclude are patterns of directories and files that are not read, with all below them. A pattern without / is for names in every
	// directory.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Exclude []string `json:"exclude,omitempty"`
}

// MatrixGenerator combines each entry of one generator with each of another one.
type MatrixGenerator struct {
	// Generators are two. Both may give one parameter when its values are the same.
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Generators []SourceEntryGenerator `json:"generators"`
}

// MergeGenerator adds parameters to the entries of its first generator.
type MergeGenerator struct {
	// Generators: the first one has the entries. Those of a later one add their parameters to the entry with the same keys, and
	// go before parameters of earlier ones. An entry of a later one without such an entry is left out.
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	Generators []SourceEntryGenerator `json:"generators"`
	// Keys are the parameters that identify an entry, such as cluster.name. Every entry has them.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Keys []string `json:"keys"`
}

// SourceTemplate is the template of Sources. Its texts are templates of Go over the parameters of an entry. A parameter that is
// missing is an error.
type SourceTemplate struct {
	// Metadata of the Sources.
	Metadata SourceTemplateMetadata `json:"metadata"`
	// Spec of the Sources. Its fields are those of the spec of a Source, and each text in it is a template.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec apiextensionsv1.JSON `json:"spec"`
}

// SourceTemplateMetadata is the metadata of the Sources of a template.
type SourceTemplateMetadata struct {
	// Name of the Source. Each entry must give another one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// Labels of the Source. The hub adds atoll.dev/source-set.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Source.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LabelSourceSet is the label of Sources that a SourceSet made. Its value is the name of the SourceSet.
const LabelSourceSet = "atoll.dev/source-set"

// AnnotationSourceSetUID is the annotation of Sources that a SourceSet created. Its value is the UID of the SourceSet. It counts only where
// the field manager of the SourceSet has set it.
const AnnotationSourceSetUID = "atoll.dev/source-set-uid"

// MaxGeneratedSources is the most Sources that one SourceSet makes.
const MaxGeneratedSources = 1000

// Condition types of a SourceSet.
const (
	// SourceSetGenerated is false while a generator cannot be read or makes nothing, or the template fails. Nothing is removed then.
	SourceSetGenerated = "Generated"
	// SourceSetApplied is false while a generated Source is not on the hub as the template states it.
	SourceSetApplied = "Applied"
)

// SourceSetStatus is the observed state of a SourceSet.
type SourceSetStatus struct {
	// ObservedGeneration of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Sources counts the Sources.
	// +optional
	Sources SourceSetCounts `json:"sources,omitempty"`
	// WaitsFor is what the SourceSet waits for, in a few words; empty when it is complete.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// Revisions are the commits that the Sources come from, by generator. A commit that changes nothing for the SourceSet is not
	// noted.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=generator
	Revisions []GeneratorRevision `json:"revisions,omitempty"`
	// Errors are the first 20 problems, with file and line where a file has one.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Errors []SourceError `json:"errors,omitempty"`
	// Settings is a digest of what of the spec decided which Sources there are, without the elements of lists.
	// +optional
	Settings string `json:"settings,omitempty"`
	// Inventory is the Sources that the SourceSet made, by name.
	// +optional
	// +kubebuilder:validation:MaxItems=2000
	// +listType=map
	// +listMapKey=name
	Inventory []GeneratedSource `json:"inventory,omitempty"`
	// Conditions: Generated and Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SourceSetCounts counts the Sources of a SourceSet.
type SourceSetCounts struct {
	// Generated is the number of Sources that the generators give.
	// +optional
	Generated int32 `json:"generated"`
	// Applied is the number of generated Sources that are on the hub as the template states them.
	// +optional
	Applied int32 `json:"applied"`
	// Kept is the number of made Sources that are no longer generated and stay.
	// +optional
	Kept int32 `json:"kept,omitempty"`
}

// GeneratorRevision is the commit that a generator read.
type GeneratorRevision struct {
	// Generator is its path in the spec, such as generators[0].directories.
	Generator string `json:"generator"`
	// Commit, or the revision of an artifact.
	Commit string `json:"commit"`
}

// GeneratedSource is a Source that a SourceSet made.
type GeneratedSource struct {
	// Name of the Source.
	Name string `json:"name"`
	// UID of the Source that the SourceSet created; empty for one that existed before, or that others made again. Only this one
	// is ever deleted.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Generator is the index of the generator in the spec.
	Generator int32 `json:"generator"`
	// Cluster of the entry, where a clusters generator gave one.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// Hash of what was applied.
	// +optional
	Hash string `json:"hash,omitempty"`
	// Kept is why the Source stays although it is no longer generated; empty for a generated one.
	// +optional
	Kept string `json:"kept,omitempty"`
	// DroppedTime is when the Source was first no longer generated by the labels of its Cluster, while its removal is paused or waits.
	// +optional
	DroppedTime *metav1.Time `json:"droppedTime,omitempty"`
}

// SourceSetList is a list of SourceSets.
//
// +kubebuilder:object:root=true
type SourceSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SourceSet `json:"items"`
}
