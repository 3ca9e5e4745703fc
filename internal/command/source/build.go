package source

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// buildFlags state how objects are made of files.
type buildFlags struct {
	kind, values, releaseName, kubeVersion string
	valuesFiles, apiVersions               []string
	omitHooks                              bool
}

// addType adds the flag of the type of a build.
func (b *buildFlags) addType(f *pflag.FlagSet) {
	f.StringVar(&b.kind, "build", "", "plain, kustomize or helm (default: found out of the files of each path)")
}

// addTo adds the flags of charts.
func (b *buildFlags) addTo(f *pflag.FlagSet) {
	f.StringVar(&b.values, "values", "", "file of this machine with values of the chart, which the Source then has inline")
	f.StringSliceVar(&b.valuesFiles, "values-path", nil, "file of the repository with values of the chart; may be given more than once")
	f.StringVar(&b.releaseName, "release-name", "", "name of the release in the chart's templates (default: that of the Source)")
	f.StringVar(&b.kubeVersion, "kube-version", "", "version of Kubernetes that the chart's templates see (default: that of the hub)")
	f.StringSliceVar(&b.apiVersions, "api-versions", nil, "versions of APIs that the chart's templates see as served, in addition to those of Kubernetes")
	f.BoolVar(&b.omitHooks, "omit-hooks", false, "leave the chart's hooks of installs and upgrades out, which clusters run otherwise")
}

// newBuild returns the build that the flags state; nil when they state none.
func (b *buildFlags) newBuild() (*v1alpha1.SourceBuild, error) {
	var out v1alpha1.SourceBuild
	types := map[string]v1alpha1.SourceBuildType{"": "", "plain": v1alpha1.BuildPlain, "kustomize": v1alpha1.BuildKustomize, "helm": v1alpha1.BuildHelm}
	kind, known := types[strings.ToLower(b.kind)]
	if !known {
		return nil, fmt.Errorf("--build: %q is not plain, kustomize or helm", b.kind)
	}
	out.Type = kind
	helm := v1alpha1.HelmBuild{ReleaseName: b.releaseName, ValuesFiles: b.valuesFiles, KubeVersion: b.kubeVersion, APIVersions: b.apiVersions}
	if b.omitHooks {
		helm.Hooks = v1alpha1.HooksOmit
	}
	var err error
	if helm.Values, err = readValues(b.values); err != nil {
		return nil, err
	}
	if !apiequality.Semantic.DeepEqual(helm, v1alpha1.HelmBuild{}) {
		out.Helm = &helm
	}
	if out.Type == "" && out.Helm == nil {
		return nil, nil
	}
	return &out, nil
}

// readValues returns the values of a file; nil without one.
func readValues(file string) (*apiextensionsv1.JSON, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--values: %w", err)
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("--values: %s: %w", file, err)
	}
	return &apiextensionsv1.JSON{Raw: raw}, nil
}
