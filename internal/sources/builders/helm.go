package builders

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"

	"atoll.dev/atoll/internal/sources/render"
)

// maxArchiveBytes is the most of an archive below charts/ after decompression.
const maxArchiveBytes = 16 << 20

// renderChart renders a chart without a cluster, and returns its name and version.
func (b *builder) renderChart(one render.Build) (name string) {
	c, err := b.loadChart(one)
	if err != nil {
		b.ReportProblem(path.Join(one.Dir, "Chart.yaml"), 0, "%s", shortenError(err))
		return ""
	}
	name = c.Metadata.Name + "-" + c.Metadata.Version
	if err := checkDependencies(c); err != nil {
		b.ReportProblem(path.Join(one.Dir, "Chart.yaml"), 0, "%s", shortenError(err))
		return name
	}
	values, file, err := b.readValues()
	if err != nil {
		b.ReportProblem(file, 0, "%s", shortenError(err))
		return name
	}
	rendered, err := b.renderTemplates(c, values)
	if err != nil {
		b.reportTemplate(one.Dir, c.Name(), err)
		return name
	}
	at := len(b.Objects)
	for _, d := range c.CRDObjects() {
		b.ReadFile(placeTemplate(one.Dir, c.Name(), d.Filename), d.File.Data)
	}
	definitions := len(b.Objects) - at
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if !b.IsFull() && path.Base(file) != "NOTES.txt" && strings.TrimSpace(rendered[file]) != "" {
			b.ReadFile(placeTemplate(one.Dir, c.Name(), file), []byte(rendered[file]))
		}
	}
	b.convertHooks(at + definitions)
	return name
}

// loadChart loads a chart of the files of the Job.
func (b *builder) loadChart(one render.Build) (*chart.Chart, error) {
	archive.MaxDecompressedChartSize, archive.MaxDecompressedFileSize = maxArchiveBytes, render.MaxFileBytes
	files := make([]*archive.BufferedFile, 0, len(one.Files))
	for _, name := range one.Files {
		inside := strings.TrimPrefix(strings.TrimPrefix(name, one.Dir), "/")
		files = append(files, &archive.BufferedFile{Name: inside, Data: slices.Clone(b.job.Files[name])})
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	if c.Metadata.Type == "library" {
		return nil, errors.New("a chart of the type library has no objects; state a chart that uses it")
	}
	return c, nil
}

// checkDependencies returns an error for a dependency that is not below charts/, also one of a dependency. Helm renders a
// dependency of another version without its alias and its condition, so that one is an error, too.
func checkDependencies(c *chart.Chart) error {
	for _, d := range c.Metadata.Dependencies {
		has := func(sub *chart.Chart) bool {
			return sub.Name() == d.Name && chartutil.IsCompatibleRange(d.Version, sub.Metadata.Version)
		}
		if !slices.ContainsFunc(c.Dependencies(), has) {
			return fmt.Errorf("the dependency %s %s of chart %s is not in its directory charts/, and nothing is fetched; run `helm dependency build` before the chart is committed or packaged", d.Name, d.Version, c.Name())
		}
	}
	for _, sub := range c.Dependencies() {
		if err := checkDependencies(sub); err != nil {
			return err
		}
	}
	return nil
}

// readValues merges the values of files, of inputs and of the Source. It returns the place of an error.
func (b *builder) readValues() (map[string]any, string, error) {
	values := map[string]any{}
	stated := b.job.Options.Helm
	if stated == nil {
		return values, "", nil
	}
	add := func(text []byte) error {
		more, err := loader.LoadValues(bytes.NewReader(text))
		values = loader.MergeMaps(values, more)
		return err
	}
	for _, of := range []struct {
		files  []string
		inputs []render.InputID
		values []byte
		field  string
	}{
		{stated.ValuesFiles, stated.ValuesFrom, stated.Values, "spec.build.helm.values"},
		{stated.VariantFiles, stated.VariantFrom, stated.VariantValues, "helm.values of the variant"},
	} {
		for _, name := range of.files {
			name = render.CleanPath(name)
			if err := add(b.job.Files[name]); err != nil {
				return nil, name, err
			}
		}
		for _, id := range of.inputs {
			if err := add(b.job.Inputs[id]); err != nil {
				return nil, id.Format(), err
			}
		}
		if len(of.values) == 0 {
			continue
		}
		if err := add(of.values); err != nil {
			return nil, of.field, err
		}
	}
	return values, "", nil
}

// renderTemplates renders the templates of a chart and of its dependencies that values enable.
func (b *builder) renderTemplates(c *chart.Chart, values map[string]any) (map[string]string, error) {
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, err
	}
	capabilities, err := newCapabilities(b.job.Options.Helm)
	if err != nil {
		return nil, err
	}
	if c.Metadata.KubeVersion != "" && !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, capabilities.KubeVersion.String()) {
		return nil, fmt.Errorf("the chart needs Kubernetes %s, and templates see %s; see spec.build.helm.kubeVersion", c.Metadata.KubeVersion, capabilities.KubeVersion.String())
	}
	if err := chartutil.ValidateReleaseName(b.job.Options.ReleaseName); err != nil {
		return nil, fmt.Errorf("the name of the release is that of the Source, or spec.build.helm.releaseName: %w", err)
	}
	release := common.ReleaseOptions{Name: b.job.Options.ReleaseName, Namespace: b.job.Options.Namespace, Revision: 1, IsInstall: true}
	all, err := commonutil.ToRenderValues(c, values, release, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{CustomTemplateFuncs: newClockFunctions(b.clock)}.Render(c, all)
}

// newCapabilities returns the versions that templates see.
func newCapabilities(stated *render.HelmOptions) (*common.Capabilities, error) {
	out := common.DefaultCapabilities.Copy()
	if stated == nil {
		return out, nil
	}
	out.APIVersions = append(slices.Clone(out.APIVersions), stated.APIVersions...)
	if stated.KubeVersion != "" {
		v, err := common.ParseKubeVersion(stated.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("spec.build.helm.kubeVersion: %w", err)
		}
		out.KubeVersion = *v
	}
	return out, nil
}

// placeTemplate returns the file of the repository that a template is.
func placeTemplate(dir, chartName, name string) string {
	return path.Join(dir, strings.TrimPrefix(name, chartName+"/"))
}

// templatePlace is the place of an error in a template.
var templatePlace = regexp.MustCompile(`\(?([\w.@+-]+(?:/[\w.@+-]+)+):(\d+)(?::\d+)?\)?`)

// reportTemplate reports an error of a template, by its file and line where the error has them.
func (b *builder) reportTemplate(dir, chartName string, err error) {
	text := err.Error()
	if m := templatePlace.FindStringSubmatch(text); m != nil && strings.HasPrefix(m[1], chartName+"/") {
		if line, err := strconv.Atoi(m[2]); err == nil {
			b.ReportProblem(placeTemplate(dir, chartName, m[1]), line, "%s", shortenError(errors.New(text)))
			return
		}
	}
	b.ReportProblem(path.Join(dir, "Chart.yaml"), 0, "%s", shortenError(err))
}
