package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// MaxJobBytes is the most bytes of all files of a Job.
const MaxJobBytes = 16 << 20

// Want is what a Source reads of a tree.
type Want struct {
	Paths   []string `json:"paths,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	Options Options  `json:"options"`
	// Variants are read in addition.
	Variants []Variant `json:"variants,omitempty"`
	// Inputs are values that the options name.
	Inputs Inputs `json:"inputs,omitempty"`
}

// Selection is the files of a tree that a Source reads.
type Selection struct {
	files    map[string]Entry
	plain    []string
	builds   []Build
	problems []Problem
	options  Options
	inputs   Inputs
	// variants read some of the files.
	variants []VariantJob
}

// Select returns what a Source reads of a tree, with its variants. The error is a *Failure, or one of the tree.
func Select(t Tree, w Want) (*Selection, error) {
	s, err := selectOne(t, w)
	if err != nil {
		return nil, err
	}
	s.inputs = w.Inputs
	for _, v := range w.Variants {
		of := Want{Paths: w.Paths, Exclude: w.Exclude, Options: v.Options}
		if len(v.Paths) > 0 {
			of.Paths = v.Paths
		}
		one, err := selectOne(t, of)
		if err != nil {
			return nil, inVariantError(v.Name, err)
		}
		s.variants = append(s.variants, VariantJob{Name: v.Name, Plain: one.plain, Builds: one.builds, Options: v.Options, Patches: v.Patches})
		s.problems = append(s.problems, inVariant(v.Name, one.problems)...)
		maps.Copy(s.files, one.files)
	}
	if s.problems = s.problems[:min(len(s.problems), MaxProblems)]; len(s.files) > MaxFiles {
		return nil, errTooManyFiles
	}
	return s, nil
}

// selectOne returns what a Source reads of a tree without its variants.
func selectOne(t Tree, w Want) (*Selection, error) {
	s := &selector{boundedTree: newBoundedTree(t), want: w, paths: []string{""}, Selection: &Selection{files: map[string]Entry{}, options: w.Options}}
	if len(w.Paths) > 0 {
		s.paths = nil
	}
	for _, dir := range w.Paths {
		if dir = CleanPath(dir); !slices.Contains(s.paths, dir) {
			s.paths = append(s.paths, dir)
		}
	}
	if err := s.findBuilds(); err != nil {
		return nil, err
	}
	if s.mayContain("") {
		if err := s.listPlain(t.Root(), ""); err != nil {
			return nil, err
		}
	}
	for i := range s.builds {
		if err := s.selectBuild(&s.builds[i]); err != nil {
			return nil, err
		}
	}
	if err := s.selectValues(); err != nil {
		return nil, err
	}
	slices.Sort(s.plain)
	if len(s.files) > MaxFiles {
		return nil, errTooManyFiles
	}
	return s.Selection, nil
}

var errTooManyFiles = NewFailure(atoll.ReasonContentTooLarge, "the Source has more than %d files; divide it into several", MaxFiles)

// selector selects files.
type selector struct {
	*boundedTree
	*Selection
	want Want
	// paths of the Source; one that is empty for the whole tree.
	paths []string
}

// reportProblem adds a problem. An entry that may hold objects and is not read is one: without it, what the entry held
// would look like what a commit dropped.
func (s *selector) reportProblem(name, format string, args ...any) {
	if len(s.problems) < MaxProblems {
		s.problems = append(s.problems, Problem{File: name, Message: fmt.Sprintf(format, args...)})
	}
}

// isExcluded reports whether a pattern excludes a file or a directory.
func (s *selector) isExcluded(name string) bool {
	return slices.ContainsFunc(s.want.Exclude, func(p string) bool { return MatchPattern(p, name) })
}

// findIncluded returns the entry of a path that no pattern excludes; false when there is none.
func (s *selector) findIncluded(name string) (Entry, bool, error) {
	if name != "" && s.isExcluded(name) {
		return Entry{}, false, nil
	}
	return s.findEntry(name)
}

// kustomizationNames are the names of a kustomization, of which a directory has one.
var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

const chartName = "Chart.yaml"

// findKustomization returns the kustomization of a directory; empty when it has none.
func (s *selector) findKustomization(dir string) (string, error) {
	for _, name := range kustomizationNames {
		if e, ok, err := s.findIncluded(path.Join(dir, name)); err != nil || ok && e.Mode == ModeFile {
			return path.Join(dir, name), err
		}
	}
	return "", nil
}

// findBuilds finds out which paths are built, and by what.
func (s *selector) findBuilds() error {
	for _, dir := range s.paths {
		e, ok, err := s.findEntry(dir)
		if err != nil {
			return err
		}
		if !ok || e.Mode != ModeDirectory {
			s.checkFile(dir, e, ok)
			continue
		}
		kind, err := s.findType(dir)
		if err != nil {
			return err
		}
		if kind != Plain {
			s.builds = append(s.builds, Build{Type: kind, Dir: dir})
		}
	}
	isChart := func(b Build) bool { return b.Type == Helm }
	if h := s.want.Options.Helm; h != nil && !h.MayBeUnused && !slices.ContainsFunc(s.builds, isChart) {
		field := "spec.build.helm"
		if len(h.VariantFiles)+len(h.VariantValues) > 0 {
			field = "helm"
		}
		s.reportProblem(displayPath(s.paths[0]), "%s is stated, and no path of the Source has a %s", field, chartName)
	}
	return nil
}

// checkFile reports a path that is a file where the Source states a type for directories.
func (s *selector) checkFile(name string, e Entry, found bool) {
	if stated := s.want.Options.Type; found && e.Mode == ModeFile && stated != "" && stated != Plain {
		s.reportProblem(name, "the path is a file, which %s cannot build; state a directory in spec.paths", stated)
	}
}

// displayPath returns the path of a directory for people.
func displayPath(dir string) string { return cmp.Or(dir, ".") }

// findType returns how objects are made of a directory.
func (s *selector) findType(dir string) (Type, error) {
	kustomization, err := s.findKustomization(dir)
	if err != nil {
		return "", err
	}
	chart, isChart, err := s.findIncluded(path.Join(dir, chartName))
	if err != nil {
		return "", err
	}
	return s.chooseType(dir, kustomization, isChart && chart.Mode == ModeFile), nil
}

// chooseType returns the type of a directory by what it has and what the Source states.
func (s *selector) chooseType(dir, kustomization string, isChart bool) Type {
	has := map[Type]bool{Helm: isChart, Kustomize: kustomization != ""}
	markers := map[Type]string{Helm: chartName, Kustomize: "kustomization.yaml"}
	switch stated := s.want.Options.Type; {
	case stated == Plain || !isChart && kustomization == "" && stated == "":
		return Plain
	case stated != "" && !has[stated]:
		s.reportProblem(displayPath(dir), "spec.build.type is %s, and the directory has no %s", stated, markers[stated])
		return Plain
	case stated != "":
		return stated
	case has[Helm] && has[Kustomize]:
		s.reportProblem(displayPath(dir), "the directory has a %s and a %s; state spec.build.type", chartName, path.Base(kustomization))
		return Plain
	case has[Helm]:
		return Helm
	}
	return Kustomize
}

// isBuilt reports whether a path is one of a build.
func (s *selector) isBuilt(dir string) bool {
	return slices.ContainsFunc(s.builds, func(b Build) bool { return b.Dir == dir })
}

// isPlain reports whether the longest path of the Source that contains a file, or is it, is read as it is.
func (s *selector) isPlain(name string) bool {
	longest, found := "", false
	for _, p := range s.paths {
		if (p == "" || p == name || strings.HasPrefix(name, p+"/")) && len(p) >= len(longest) {
			longest, found = p, true
		}
	}
	return found && !s.isBuilt(longest)
}

// listPlain lists the plain files below a directory, without following links.
func (s *selector) listPlain(e Entry, dir string) error {
	entries, err := s.listDirectory(dir, e)
	if err != nil {
		return err
	}
	for _, one := range entries {
		if err := s.addPlain(one, path.Join(dir, one.Name)); err != nil || len(s.problems) >= MaxProblems {
			return err
		}
	}
	return nil
}

// addPlain adds a file that the Source selects, or the files below a directory.
func (s *selector) addPlain(e Entry, name string) error {
	isContent := IsContentFile(name) && s.isPlain(name) && !s.isExcluded(name)
	switch {
	case e.Mode == ModeLink:
		return s.addPlainLink(e, name, isContent)
	case e.Mode == ModeFile && isContent:
		s.plain = append(s.plain, name)
		s.files[name] = e
	case e.Mode == ModeFile || e.Mode == ModeOther || !s.mayContain(name):
	case e.Mode == ModeSubmodule:
		s.reportProblem(name, "the directory is a submodule, which is not read; exclude it or commit its files")
	case e.Mode == ModeDirectory:
		return s.listPlain(e, name)
	}
	if len(s.files) > MaxFiles {
		return errTooManyFiles
	}
	return nil
}

// addPlainLink reports a symbolic link that is in the place of a file of content, or of a directory.
func (s *selector) addPlainLink(e Entry, name string, isContent bool) error {
	if isContent {
		s.reportProblem(name, "the file is a symbolic link, which is not followed; exclude it or commit the file")
		return nil
	}
	if IsContentFile(name) || !s.mayContain(name) {
		return nil
	}
	isFile, err := s.leadsToFile(e, name)
	if err == nil && !isFile {
		s.reportProblem(name, "the directory is a symbolic link, which is not followed; exclude it or commit the files")
	}
	return err
}

// leadsToFile reports whether a symbolic link leads to a file of the tree, which is then no file of content.
func (s *selector) leadsToFile(e Entry, name string) (bool, error) {
	target, err := s.tree.Read(name, e, maxLinkBytes)
	if err != nil || path.IsAbs(string(target)) {
		return false, nil
	}
	at := path.Join(path.Dir(name), string(target))
	if isOutside(at) {
		return false, nil
	}
	found, ok, err := s.findEntry(CleanPath(at))
	return ok && found.Mode == ModeFile, err
}

// isOutside reports whether a clean relative path leads out of the root.
func isOutside(name string) bool { return name == ".." || strings.HasPrefix(name, "../") }

// mayContain reports whether a directory can contain plain files of the Source.
func (s *selector) mayContain(dir string) bool {
	if dir != "" && (strings.HasPrefix(path.Base(dir), ".") || s.isExcluded(dir)) {
		return false
	}
	below := strings.TrimPrefix(dir+"/", "/")
	return s.isPlain(dir) || slices.ContainsFunc(s.paths, func(p string) bool { return strings.HasPrefix(p, below) && !s.isBuilt(p) })
}

// selectBuild selects the files that a build reads.
func (s *selector) selectBuild(b *Build) error {
	if b.Type == Kustomize {
		return newClosure(s).addDirectory(b.Dir)
	}
	return s.selectChart(b)
}

// selectValues selects the files with values of charts.
func (s *selector) selectValues() error {
	h := s.want.Options.Helm
	if h == nil {
		return nil
	}
	for _, name := range h.ValuesFiles {
		if err := s.selectFile(CleanPath(name), "spec.build.helm.valuesFiles names the file"); err != nil {
			return err
		}
	}
	for _, name := range h.VariantFiles {
		if err := s.selectFile(CleanPath(name), "helm.valuesFiles names the file"); err != nil {
			return err
		}
	}
	return nil
}

// selectFile selects a file that must be there.
func (s *selector) selectFile(name, why string) error {
	e, ok, err := s.findIncluded(name)
	switch {
	case err != nil:
		return err
	case ok && e.Mode == ModeFile:
		s.files[name] = e
		return nil
	}
	link, err := s.findLink(name)
	if link != "" {
		s.reportProblem(name, "%s, and %s is a symbolic link, which is not followed; commit the file", why, link)
		return err
	}
	s.reportProblem(name, "%s, which the repository does not have", why)
	return err
}

// Digest returns a digest of the names and contents of the files, by the hashes of the tree, and of the inputs.
func (s *Selection) Digest() string {
	h := sha256.New()
	for _, name := range s.fileNames() {
		fmt.Fprintf(h, "%s %s\n", s.files[name].Hash, name)
	}
	for _, p := range s.problems {
		fmt.Fprintf(h, "problem %s\n", p.File)
	}
	if len(s.builds) > 0 {
		raw, err := json.Marshal(s.builds)
		if err != nil {
			panic(fmt.Sprintf("render: builds cannot be encoded: %v", err))
		}
		h.Write(raw)
	}
	if len(s.variants) > 0 {
		raw, err := json.Marshal(s.variants)
		if err != nil {
			panic(fmt.Sprintf("render: variants cannot be encoded: %v", err))
		}
		h.Write(raw)
	}
	if len(s.inputs) > 0 {
		fmt.Fprintf(h, "inputs %s\n", s.inputs.Digest())
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

func (s *Selection) fileNames() []string {
	names := make([]string, 0, len(s.files))
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Render renders a selection of a tree. Plain files are read here, and builds by run, in a process of their own. The
// error is one of the tree, or of run.
func (s *Selection) Render(t Tree, run func(Job) (Result, error)) (Result, error) {
	r := &Reader{Problems: s.problems}
	hasBuilds := len(s.builds) > 0 || slices.ContainsFunc(s.variants, func(v VariantJob) bool { return len(v.Builds) > 0 })
	if !hasBuilds && len(s.variants) == 0 || len(s.problems) > 0 {
		return s.readPlain(t, r)
	}
	j := Job{Plain: s.plain, Builds: s.builds, Files: make(map[string][]byte, len(s.files)), Options: s.options, Variants: s.variants, Inputs: s.inputs}
	size := 0
	for _, name := range s.fileNames() {
		text, ok, err := s.readFile(t, name, r)
		if err != nil {
			return Result{}, err
		}
		if size += len(text); size > MaxJobBytes {
			return Result{Failure: NewFailure(atoll.ReasonContentTooLarge, "the charts, kustomizations and variants of the Source read more than %d bytes; exclude files that they do not need", MaxJobBytes)}, nil
		}
		if ok {
			j.Files[name] = text
		}
	}
	switch {
	case len(r.Problems) > 0:
		return r.NewResult(), nil
	case hasBuilds:
		return run(j)
	}
	return RenderVariants(j, func(one Job) Result {
		var plain Reader
		plain.ReadPlain(one)
		return plain.NewResult()
	}), nil
}

// readPlain reads the plain files, also where there are problems already.
func (s *Selection) readPlain(t Tree, r *Reader) (Result, error) {
	for _, name := range s.plain {
		if r.IsFull() {
			break
		}
		text, ok, err := s.readFile(t, name, r)
		if err != nil {
			return Result{}, err
		}
		if ok {
			r.ReadFile(name, text)
		}
	}
	return r.NewResult(), nil
}

// readFile reads one file; false when it is too large, which is a problem.
func (s *Selection) readFile(t Tree, name string, r *Reader) ([]byte, bool, error) {
	text, err := t.Read(name, s.files[name], MaxFileBytes)
	if errors.Is(err, ErrTooLarge) {
		r.ReportProblem(name, 0, "the file has more than %d bytes", MaxFileBytes)
		return nil, false, nil
	}
	return text, err == nil, err
}
