package render

import "encoding/json"

// Type specifies how objects are made of a path.
type Type string

// The types of builds, as the API has them.
const (
	Plain     Type = "Plain"
	Kustomize Type = "Kustomize"
	Helm      Type = "Helm"
)

// Options of the builds of a Source.
type Options struct {
	// Type of every path; empty: found out.
	Type Type         `json:"type,omitempty"`
	Helm *HelmOptions `json:"helm,omitempty"`
	// ReleaseName and Namespace of charts.
	ReleaseName string `json:"releaseName,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
}

// HelmOptions are what a Source states of its charts.
type HelmOptions struct {
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// ValuesFrom are inputs with values, which go before the files.
	ValuesFrom  []InputID       `json:"valuesFrom,omitempty"`
	Values      json.RawMessage `json:"values,omitempty"`
	KubeVersion string          `json:"kubeVersion,omitempty"`
	APIVersions []string        `json:"apiVersions,omitempty"`
	OmitHooks   bool            `json:"omitHooks,omitempty"`
	RefuseHooks bool            `json:"refuseHooks,omitempty"`
	// VariantFiles, VariantFrom and VariantValues are the values of a variant, which go before the others.
	VariantFiles  []string        `json:"variantFiles,omitempty"`
	VariantFrom   []InputID       `json:"variantFrom,omitempty"`
	VariantValues json.RawMessage `json:"variantValues,omitempty"`
	// MayBeUnused is true for what a variant with paths of its own has of the Source: the paths need no chart.
	MayBeUnused bool `json:"mayBeUnused,omitempty"`
}

// Build is a path of which Kustomize or Helm makes objects.
type Build struct {
	Type Type   `json:"type"`
	Dir  string `json:"dir"`
	// Files of a chart.
	Files []string `json:"files,omitempty"`
	// Chart is the name and the version of a chart; set by what renders it.
	Chart string `json:"chart,omitempty"`
}

// Job is what a process renders. It reads nothing else.
type Job struct {
	// Plain are files that are read as they are.
	Plain  []string `json:"plain,omitempty"`
	Builds []Build  `json:"builds,omitempty"`
	// Files of plain paths and builds, also of variants, by name.
	Files    map[string][]byte `json:"files"`
	Inputs   Inputs            `json:"inputs,omitempty"`
	Options  Options           `json:"options"`
	Variants []VariantJob      `json:"variants,omitempty"`
}

// Result is what a Job renders to.
type Result struct {
	Failure  *Failure  `json:"failure,omitempty"`
	Objects  []Object  `json:"objects,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	Builds   []Build   `json:"builds,omitempty"`
	// Omitted are the hooks that were left out.
	Omitted int `json:"omitted,omitempty"`
	// Program names the libraries that rendered; empty for plain files. Another one may render other objects.
	Program string `json:"program,omitempty"`
	// Variants in the order of the Job.
	Variants []VariantResult `json:"variants,omitempty"`
}

// ReadPlain reads the plain files of a Job.
func (r *Reader) ReadPlain(j Job) {
	for _, name := range j.Plain {
		if r.IsFull() {
			return
		}
		r.ReadFile(name, j.Files[name])
	}
}

// NewResult returns the objects that were read, or the problems.
func (r *Reader) NewResult() Result {
	if len(r.Problems) > 0 {
		return Result{Problems: r.Problems}
	}
	return Result{Objects: r.Objects}
}
