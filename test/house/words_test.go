package house

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const (
	maxSentenceWords = 30 // of a sentence in a package comment
	maxComplexity    = 12 // branches of a function, plus one
)

// bannedWords are unclear to readers, or replace a term that the field has.
var bannedWords = regexp.MustCompile(`(?i)\b(wh` + `o|wh` + `om|wh` + `oever|no` + `body|some` + `body|any` + `body|a` + `new|sel` + `dom|mean` + `while|there` + `of|to` + `ld)\b`)

// personalVerbs are for people. A function returns, reports, writes or deletes, and a thing specifies, stores or
// requests. The first group of a match is the subject.
var personalVerbs = regexp.MustCompile(`\b(\w+)(?: (?:that|which))?(?: (?:does not|do not|cannot|can|may|must|will|would))? ` +
	`(says?|knows?|tells?|believes?|wants?|asks?|minds?|thinks?|hears?|hopes?|learns?|forgets?|remembers?)\b`)

// speechlessThings are subjects that do nothing of what personalVerbs name.
var speechlessThings = strings.Fields(`
	it which hub hubs agent agents member members cluster clusters row rows policy policies placement placements
	function functions method record records object objects item items status statuses condition conditions reason
	message error errors annotation label field fields rule rules script scripts interpreter interpreters store table
	tables log report answer request template templates bundle bundles kind kinds manifest schema spec cache watch
	session stream controller scheduler server gateway admission etcd api atoll kubectl command test config option
	options flag file files text body header certificate token lease event webhook plugin core package type struct`)

// bannedNames are words that no identifier may contain.
var bannedNames = regexp.MustCompile(`(?i)(door` + `man|turn` + `stile|together` + `ness|home` + `less|be` + `fall|guests)`)

// clauseOpening finds a sentence that begins with a clause where its subject should be.
var clauseOpening = regexp.MustCompile(`(?:^|[.:;]\s+)(That|Wh` + `o|Wh` + `oever|What|What` + `ever|Where|Of|Wh` + `om)\s`)

var sentenceEnd = regexp.MustCompile(`[.:;?](?:\s+|$)`)

// oneWordNames are the unexported function names of one word that every Go reader knows.
var oneWordNames = strings.Fields(`
	accept add admit apply call clone close commit copy create decode delete describe discard done encode enqueue equal
	error fail fatal find flush get handle has init insert len less list load lock log main match merge next open parse
	patch pop print push put read record register release remove render reset run save send serve set sort start stop
	store string swap sync unlock unwrap update validate wait wake watch write`)

// violation is one place that breaks a rule on words or complexity.
type violation struct {
	rule, dir, at, why string
}

// TestWordsArePlain holds the rules of language that a program can check, and the rule on bounds of
// tests. Directories that do not
// meet a rule yet are listed with their number of violations in words_budget.tsv. A number there
// may only shrink: the test fails when it is too low, and when it is higher than needed.
func TestWordsArePlain(t *testing.T) {
	found := map[string][]violation{}
	for _, v := range slices.Concat(violationsInSources(t), violationsInPages(t)) {
		key := v.rule + "\t" + v.dir
		found[key] = append(found[key], v)
	}
	allowed := readWordsBudget(t)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		all := found[key]
		if len(all) <= allowed[key] {
			continue
		}
		for _, v := range all {
			t.Errorf("%s: %s", v.at, v.why)
		}
		t.Errorf("%s: %d violations, %d allowed by words_budget.tsv", strings.ReplaceAll(key, "\t", " in "), len(all), allowed[key])
	}
	for key, n := range allowed {
		if len(found[key]) < n {
			t.Errorf("words_budget.tsv: %s has %d violations, %d are allowed: lower the number", strings.ReplaceAll(key, "\t", " in "), len(found[key]), n)
		}
	}
	if path := os.Getenv("ATOLL_WORDS_BUDGET"); path != "" {
		writeWordsBudget(t, path, found)
	}
}

// readWordsBudget returns the allowed number of violations by rule and directory.
func readWordsBudget(t *testing.T) map[string]int {
	t.Helper()
	f, err := os.Open("words_budget.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	budget := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") || lines.Text() == "" {
			continue
		}
		cut := strings.LastIndex(lines.Text(), "\t")
		n, err := strconv.Atoi(lines.Text()[cut+1:])
		if err != nil || n <= 0 {
			t.Fatalf("words_budget.tsv: %q: want rule, directory and a number over 0", lines.Text())
		}
		budget[lines.Text()[:cut]] = n
	}
	return budget
}

func writeWordsBudget(t *testing.T, path string, found map[string][]violation) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# rule\tdirectory\tviolations that remain; a number may only shrink\n")
	for _, key := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%s\t%d\n", key, len(found[key]))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func violationsInSources(t *testing.T) (all []violation) {
	for _, s := range loadSources(t) {
		if s.generated {
			continue
		}
		all = slices.Concat(all, violationsInComments(s), violationsInStrings(s), violationsInFunctions(s), boundsInTest(s))
	}
	return all
}

func violationsInComments(s source) (all []violation) {
	for _, group := range s.syntax.Comments {
		text := strings.Join(strings.Fields(group.Text()), " ")
		all = append(all, violationsInText(s.dir, s.positionOf(group), text)...)
		if group == s.syntax.Doc {
			all = append(all, longSentences(s, group)...)
		}
	}
	return all
}

func violationsInText(dir, at, text string) (all []violation) {
	for _, word := range bannedWords.FindAllString(text, -1) {
		all = append(all, violation{"banned word", dir, at, fmt.Sprintf("%q: name the person or component, or use the field's term", word)})
	}
	for _, m := range clauseOpening.FindAllStringSubmatch(text, -1) {
		all = append(all, violation{"sentence opening", dir, at, fmt.Sprintf("a sentence begins with %q: begin with its subject", m[1])})
	}
	return append(all, personalVerbsInText(dir, at, text)...)
}

// personalVerbsInText finds things that speak: one of speechlessThings with a verb of people, and an identifier at
// the beginning of a comment or in the middle of a text.
func personalVerbsInText(dir, at, text string) (all []violation) {
	for _, m := range personalVerbs.FindAllStringSubmatchIndex(text, -1) {
		subject, verb := text[m[2]:m[3]], text[m[4]:m[5]]
		isIdentifier := strings.ContainsFunc(subject[1:], unicode.IsUpper) && strings.ContainsFunc(subject, unicode.IsLower)
		if isIdentifier || slices.Contains(speechlessThings, strings.ToLower(subject)) {
			all = append(all, violation{"personal verb", dir, at, fmt.Sprintf("%q with %q: a thing returns, reports, stores or requests", verb, subject)})
		}
	}
	return all
}

// longSentences finds sentences of a package comment that are over maxSentenceWords.
func longSentences(s source, doc *ast.CommentGroup) (all []violation) {
	for paragraph := range strings.SplitSeq(doc.Text(), "\n\n") {
		if strings.HasPrefix(paragraph, "\t") || strings.HasPrefix(paragraph, " ") {
			continue // a drawing or a list
		}
		for _, sentence := range sentenceEnd.Split(paragraph, -1) {
			if n := len(strings.Fields(sentence)); n > maxSentenceWords {
				all = append(all, violation{"long sentence", s.dir, s.positionOf(doc), fmt.Sprintf("a sentence of the package comment has %d words; at most %d", n, maxSentenceWords)})
			}
		}
	}
	return all
}

func violationsInStrings(s source) (all []violation) {
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			for _, word := range bannedWords.FindAllString(lit.Value, -1) {
				all = append(all, violation{"banned word", s.dir, s.positionOf(lit), fmt.Sprintf("%q in a text: name the person or component, or use the field's term", word)})
			}
		}
		return true
	})
	return all
}

func violationsInFunctions(s source) (all []violation) {
	for _, d := range s.syntax.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if isOneWord(name) && !f.Name.IsExported() && !slices.Contains(oneWordNames, name) {
			all = append(all, violation{"one-word function", s.dir, s.positionOf(f), fmt.Sprintf("%s: name a function by verb and object", name)})
		}
		if bannedNames.MatchString(name) {
			all = append(all, violation{"banned name", s.dir, s.positionOf(f), fmt.Sprintf("%s: use the field's term", name)})
		}
		if n := countBranches(f); n > maxComplexity && !s.test {
			all = append(all, violation{"complexity", s.dir, s.positionOf(f), fmt.Sprintf("%s has a complexity of %d; at most %d: name its parts", name, n, maxComplexity)})
		}
	}
	return all
}

func isOneWord(name string) bool {
	return !strings.ContainsFunc(name[1:], func(r rune) bool { return unicode.IsUpper(r) || r == '_' })
}

// countBranches of a function is McCabe's: the number of its branches plus one. Function literals
// count for the function that holds them.
func countBranches(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// violationsInPages checks the documentation, the charts and the manifests.
func violationsInPages(t *testing.T) (all []violation) {
	t.Helper()
	tree := os.DirFS(root())
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata" || base == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !slices.Contains([]string{".md", ".yaml", ".tpl", ".proto", ".txt"}, filepath.Ext(name)) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		line := 1
		for paragraph := range strings.SplitSeq(string(text), "\n\n") {
			if !strings.HasPrefix(paragraph, "#") {
				words := strings.Join(strings.Fields(strings.TrimLeft(paragraph, "*->| ")), " ")
				all = append(all, violationsInText(path.Dir(name), fmt.Sprintf("%s:%d", name, line), words)...)
			}
			line += strings.Count(paragraph, "\n") + 2
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
