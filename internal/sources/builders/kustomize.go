package builders

import (
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"atoll.dev/atoll/internal/sources/render"
)

// buildKustomization builds a directory with Kustomize, over files in memory, without plugins, functions and charts.
func (b *builder) buildKustomization(one render.Build) {
	at := b.findKustomization(one.Dir)
	files := filesys.MakeFsInMemory()
	for name, text := range b.job.Files {
		if err := files.WriteFile("/"+name, text); err != nil {
			b.ReportProblem(name, 0, "%s", shortenError(err))
			return
		}
	}
	options := &krusty.Options{
		Reorder: krusty.ReorderOptionNone, LoadRestrictions: types.LoadRestrictionsRootOnly, PluginConfig: types.DisabledPluginConfig(),
	}
	built, err := krusty.MakeKustomizer(options).Run(files, "/"+one.Dir)
	if err != nil {
		b.ReportProblem(at, 0, "%s", shortenError(err))
		return
	}
	for _, r := range built.Resources() {
		if b.IsFull() {
			return
		}
		text, err := r.AsYAML()
		if err != nil {
			b.ReportProblem(at, 0, "%s", shortenError(err))
			return
		}
		b.ReadFile(at, text)
	}
}

// findKustomization returns the name of the kustomization of a directory.
func (b *builder) findKustomization(dir string) string {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml"} {
		if _, ok := b.job.Files[path.Join(dir, name)]; ok {
			return path.Join(dir, name)
		}
	}
	return path.Join(dir, "Kustomization")
}

// Texts of Kustomize that repeat what a patch or a generator has, which may be a password.
var (
	patchInError   = regexp.MustCompile(`\[(patch|patches): "(\\.|[^"\\])*"\]`)
	configInError  = regexp.MustCompile("with config: `.*`")
	literalInError = regexp.MustCompile(`literal sources \[.*\]: invalid literal source .*, expected key=value`)
)

// shortenError returns an error of a library in one bounded line, with paths relative to the repository, and without the
// text of patches and literals.
func shortenError(err error) string {
	text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "'/", "'")), " ")
	text = patchInError.ReplaceAllString(text, "[a patch]")
	text = configInError.ReplaceAllString(text, "with its fields")
	text = literalInError.ReplaceAllString(text, "an entry of literals is not key=value")
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
