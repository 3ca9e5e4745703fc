// Package files reads the objects that -f names, as kubectl does: YAML and JSON, from
// files, directories, URLs and the standard input.
//
// Contract: objects come in the order in which they stand, Lists taken apart; one that is
// there twice in the same words comes once. Errors name the file and the place in it, and
// never what stands there, which may be a Secret. Nothing is sent anywhere; a URL that is
// named is fetched.
package files

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FileFlags are the values of -f.
type FileFlags struct {
	// AllowUnnamed accepts objects without metadata.name, for commands that send nothing to a cluster.
	AllowUnnamed bool

	paths     []string
	recursive bool
}

// AddTo adds -f and -R.
func (n *FileFlags) AddTo(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&n.paths, "filename", "f", nil, "files, directories or URLs of objects, - for the standard input; may be given more than once")
	flags.BoolVarP(&n.recursive, "recursive", "R", false, "go into directories below")
}

// AddAs adds a flag of another name, for other files, without -R.
func (n *FileFlags) AddAs(flags *pflag.FlagSet, name, usage string) {
	flags.StringSliceVar(&n.paths, name, nil, usage)
}

// HasNames reports whether any file is named.
func (n *FileFlags) HasNames() bool { return len(n.paths) > 0 }

// Read reads all objects. There must be at least one.
func (n *FileFlags) Read(ctx context.Context, stdin io.Reader) ([]*unstructured.Unstructured, error) {
	if len(n.paths) == 0 {
		return nil, errors.New("name the files with -f; - is the standard input")
	}
	r := &objectReader{known: map[string]found{}, allowUnnamed: n.AllowUnnamed}
	for i, path := range n.paths {
		switch {
		case path == "-" && slices.Contains(n.paths[:i], "-"):
			return nil, errors.New("-f - appears twice: the standard input can be read once")
		case path == "-":
			r.readDocuments("standard input", stdin)
		case strings.HasPrefix(path, "http://"), strings.HasPrefix(path, "https://"):
			text, err := fetchURL(ctx, path)
			if err != nil {
				return nil, err
			}
			r.readDocuments(path, bytes.NewReader(text))
		default:
			if err := n.readPath(r, path); err != nil {
				return nil, err
			}
		}
	}
	if err := r.joinedError(); err != nil {
		return nil, err
	}
	if len(r.objects) == 0 {
		return nil, fmt.Errorf("there are no objects in %s", strings.Join(n.paths, ", "))
	}
	return r.objects, nil
}

// readPath reads a file, or the files of a directory.
func (n *FileFlags) readPath(r *objectReader, path string) error {
	names, err := n.expandDirectory(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := r.readFile(name); err != nil {
			return err
		}
	}
	return nil
}

// expandDirectory expands a directory into the files in it that hold objects, by name.
func (n *FileFlags) expandDirectory(path string) (names []string, err error) {
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != path && !n.recursive:
			return fs.SkipDir
		case d.IsDir():
		case name == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			names = append(names, name)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: no file ends in .yaml, .yml or .json", path)
		if !n.recursive {
			err = fmt.Errorf("%w; -R goes into the directories below", err)
		}
	}
	return names, err
}

// objectReader reads many files.
type objectReader struct {
	objects      []*unstructured.Unstructured
	known        map[string]found
	bad          []error
	allowUnnamed bool
}

// found object, and where.
type found struct {
	object *unstructured.Unstructured
	place  string
}

func (r *objectReader) readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r.readDocuments(name, f)
	return nil
}

// mostTold are how many bad documents an error names.
const mostTold = 10

// joinedError joins the errors of all documents that cannot be used.
func (r *objectReader) joinedError() error {
	if n := len(r.bad); n > mostTold {
		return errors.Join(append(slices.Clone(r.bad[:mostTold]), fmt.Errorf("and %d more", n-mostTold))...)
	}
	return errors.Join(r.bad...)
}

// addObject adds an object, unless it is there.
func (r *objectReader) addObject(u *unstructured.Unstructured, place string) {
	gk := u.GroupVersionKind().GroupKind()
	switch {
	case u.GetName() != "":
	case r.allowUnnamed: // without names, two objects are never the same
		r.objects = append(r.objects, u)
		return
	default:
		why := "it has no metadata.name"
		if u.GetGenerateName() != "" {
			why = "it has a generateName, and each apply would make another object"
		}
		r.bad = append(r.bad, fmt.Errorf("%s: %s: %s", place, gk.Kind, why))
		return
	}
	key := strings.Join([]string{gk.Group, gk.Kind, u.GetNamespace(), u.GetName()}, "/")
	before, twice := r.known[key]
	switch {
	case !twice:
		r.known[key] = found{u, place}
		r.objects = append(r.objects, u)
	case !reflect.DeepEqual(before.object.Object, u.Object):
		r.bad = append(r.bad, fmt.Errorf("%s: %s %s is in %s already, with other content", place, gk.Kind,
			cmp.Or(strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"), u.GetName()), before.place))
	}
}
