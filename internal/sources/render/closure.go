package render

import (
	"errors"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
)

// maxKustomizations is how many directories one Source's kustomizations may join.
const maxKustomizations = 1000

// closure selects the files that a kustomization names, and those that the ones below it name.
type closure struct {
	*selector
	seen map[string]bool
	// at is the kustomization that is read.
	at string
	// parsed is how many bytes were parsed.
	parsed int
}

func newClosure(s *selector) *closure { return &closure{selector: s, seen: map[string]bool{}} }

// required are the fields whose entries must be in the repository. Kustomize would fetch the others.
var required = []string{"resources", "bases", "components", "crds", "configurations", "generators", "transformers", "validators"}

// refused are the fields that run programs or fetch charts.
var refused = []string{"helmCharts", "helmGlobals", "helmChartInflationGenerator"}

// addDirectory adds a directory with a kustomization.
func (c *closure) addDirectory(dir string) error {
	if c.seen[dir] {
		return nil
	}
	if c.seen[dir] = true; len(c.seen) > maxKustomizations {
		return NewFailure(atoll.ReasonContentTooLarge, "the kustomizations of the Source join more than %d directories", maxKustomizations)
	}
	name, err := c.findKustomization(dir)
	if err != nil || name == "" {
		return err
	}
	// A directory with several of them is an error, which Kustomize reports.
	for _, one := range kustomizationNames {
		if err := c.addFile(dir, one); err != nil {
			return err
		}
	}
	fields, err := c.readFields(name, c.files[name])
	if err != nil || fields == nil {
		return err
	}
	defer func(before string) { c.at = before }(c.at)
	c.at = name
	return c.addFields(dir, fields)
}

// addFields adds what the fields of the kustomization that is read name.
func (c *closure) addFields(dir string, fields map[string]any) error {
	for _, f := range refused {
		if fields[f] != nil {
			c.reportProblem(c.at, "%s is not supported: state the chart as a path of a Source, or commit what it renders to", f)
		}
	}
	for _, f := range required {
		if err := c.addRequired(dir, f, fields[f]); err != nil {
			return err
		}
	}
	return c.addNamed(dir, fields)
}

// readFields reads the fields of a kustomization; nil when they cannot be read, which Kustomize reports.
func (c *closure) readFields(name string, e Entry) (map[string]any, error) {
	text, err := c.tree.Read(name, e, MaxFileBytes)
	if errors.Is(err, ErrTooLarge) {
		return nil, nil // reported when it is read
	}
	if err != nil {
		return nil, err
	}
	return c.parseFields(name, text)
}

// parseFields returns the fields of a text; nil when they cannot be parsed, which Kustomize reports. The text is hostile,
// and the process that selects files is that of all Sources of the Repository, so all texts have a bound.
func (c *closure) parseFields(name string, text []byte) (fields map[string]any, err error) {
	if c.parsed += len(text); c.parsed > MaxJobBytes {
		return nil, NewFailure(atoll.ReasonContentTooLarge, "the kustomizations of the Source have more than %d bytes, with the texts in their texts", MaxJobBytes)
	}
	switch err := CheckAliases(text); {
	case errors.Is(err, errAliases):
		c.reportProblem(name, "%v", err)
		return nil, nil
	case err != nil || yaml.Unmarshal(text, &fields) != nil:
		return nil, nil
	}
	return fields, nil
}

// addRequired adds the entries of a field that must be in the repository. An entry of several lines is content itself.
func (c *closure) addRequired(dir, field string, v any) error {
	entries, _ := v.([]any)
	for _, one := range entries {
		text, ok := one.(string)
		if !ok || strings.Contains(text, "\n") {
			continue
		}
		at := path.Join(dir, text)
		if path.IsAbs(text) || isOutside(at) {
			c.reportProblem(c.at, "%s: %q is outside of the repository", field, text)
			continue
		}
		e, found, err := c.findIncluded(CleanPath(at))
		if err != nil {
			return err
		}
		if !found {
			if err := c.reportMissing(field, text, CleanPath(at)); err != nil {
				return err
			}
			continue
		}
		if err := c.addEntry(dir, field, CleanPath(at), e); err != nil {
			return err
		}
	}
	return nil
}

// addEntry adds an entry of a field: a file, or a directory with a kustomization.
func (c *closure) addEntry(dir, field, at string, e Entry) error {
	switch {
	case e.Mode == ModeDirectory:
		return c.addDirectory(at)
	case e.Mode == ModeFile && slices.Contains(named, field):
		return c.addNamedInFile(dir, at, e)
	}
	return nil
}

// named are the fields of files that name further files.
var named = []string{"generators", "transformers", "validators"}

// addNamedInFile adds what the fields of a file name.
func (c *closure) addNamedInFile(dir, name string, e Entry) error {
	fields, err := c.readFields(name, e)
	if err != nil {
		return err
	}
	return c.addNamed(dir, fields)
}

// reportMissing reports an entry of a field that the repository does not have.
func (c *closure) reportMissing(field, text, at string) error {
	link, err := c.findLink(at)
	if link != "" {
		c.reportProblem(c.at, "%s: %q leads over the symbolic link %s, which is not followed; commit the files", field, text, link)
		return err
	}
	c.reportProblem(c.at, "%s: %q is not in the repository, or is excluded; nothing else is fetched, so commit it", field, text)
	return err
}

// addNamed adds the files that text in fields names. Text that names none is something else.
func (c *closure) addNamed(dir string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			if err := c.addNamed(dir, one); err != nil {
				return err
			}
		}
	case []any:
		for _, one := range v {
			if err := c.addNamed(dir, one); err != nil {
				return err
			}
		}
	case string:
		return c.addText(dir, v)
	}
	return nil
}

// addText adds what a text names.
func (c *closure) addText(dir, text string) error {
	if strings.Contains(text, "\n") {
		inside, err := c.parseFields(c.at, []byte(text))
		if err != nil {
			return err
		}
		return c.addNamed(dir, inside)
	}
	if err := c.addFile(dir, text); err != nil {
		return err
	}
	_, file, ok := strings.Cut(text, "=") // key=file of a generator
	if !ok {
		return nil
	}
	return c.addFile(dir, file)
}

// addFile adds the file of a path, where there is one.
func (c *closure) addFile(dir, name string) error {
	at := path.Join(dir, name)
	if len(name) > maxLinkBytes || name == "" || path.IsAbs(name) || isOutside(at) {
		return nil
	}
	at = CleanPath(at)
	e, ok, err := c.findIncluded(at)
	if err != nil || !ok || e.Mode != ModeFile {
		return err
	}
	if c.files[at] = e; len(c.files) > MaxFiles {
		return errTooManyFiles
	}
	return nil
}
