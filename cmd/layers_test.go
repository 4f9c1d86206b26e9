package cmd_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/cgoa-labs/labctl"

// rank is a package's place: a package imports only packages of lower rank. The tens are the layers of the architecture
// document: 0 settings, 1 leaves, 2 contracts, 3 adapters, 4 assemblies, 5 commands. The units order children below their
// parents, where the parent puts them together.
type row struct {
	rank int
	// guest marks what may run in a guest; see behindTheWall.
	guest bool
}

// table has a row for every package, or for a pattern in the form of path.Match.
var table = map[string]row{
	"config/layout": {rank: 1},
	"config/size":   {rank: 1},
	"config/strict": {rank: 2},
	"config":        {rank: 3},

	"provision/run":   {rank: 10},
	"labs/check":      {rank: 10, guest: true},
	"bootstrap/stage": {rank: 10, guest: true},

	"provision": {rank: 20},
	"images":    {rank: 20},
	"bootstrap": {rank: 20, guest: true},
	"labs":      {rank: 20, guest: true},

	// What labctl and the guest's agent say to each other, beside the agent itself.
	"bootstrap/identity": {rank: 21, guest: true},

	"provision/agent":                {rank: 31},
	"provision/run/runtest":          {rank: 21},
	"provision/state":                {rank: 30},
	"provision/ssh":                  {rank: 30},
	"provision/ssh/sshtest":          {rank: 31},
	"provision/qemu/qmp":             {rank: 30},
	"provision/qemu/argv":            {rank: 30},
	"provision/qemu/host":            {rank: 30},
	"provision/qemu/accel":           {rank: 31},
	"provision/qemu":                 {rank: 35},
	"provision/testbed":              {rank: 35},
	"provision/drivertest":           {rank: 36},
	"provision/peer":                 {rank: 30},
	"provision/stack/command":        {rank: 39},
	"provision/stack":                {rank: 40},
	"provision/drivers":              {rank: 40},
	"images/versions":                {rank: 30},
	"images/cache":                   {rank: 30},
	"images/store":                   {rank: 30},
	"images/probe":                   {rank: 30, guest: true},
	"images/container":               {rank: 30},
	"images/debian":                  {rank: 30},
	"images/source":                  {rank: 31},
	"images/bundle":                  {rank: 31},
	"images/source/*":                {rank: 32},
	"images/source/release/upstream": {rank: 32},
	"bootstrap/guestos":              {rank: 30, guest: true},
	"bootstrap/guest":                {rank: 30, guest: true},
	"bootstrap/k3s":                  {rank: 30, guest: true},
	"bootstrap/gitd":                 {rank: 30, guest: true},
	"bootstrap/argocd":               {rank: 30, guest: true},
	"labs/sandbox":                   {rank: 30, guest: true},
	"labs/engine":                    {rank: 30, guest: true},
	"labs/kube":                      {rank: 30, guest: true},
	"labs/kube/recorder":             {rank: 30, guest: true},
	"labs/argo":                      {rank: 30, guest: true},
	"labs/git":                       {rank: 30, guest: true},
	"labs/journal":                   {rank: 30, guest: true},

	"bootstrap/plan": {rank: 40, guest: true},
	"images/build":   {rank: 41},
	"labs/catalog/*": {rank: 40, guest: true},
	// What all labs share: words, the places in a guest and what is found there, verdicts on it, reference solutions, and the form of proofs.
	"labs/text":          {rank: 19, guest: true},
	"labs/ground":        {rank: 31, guest: true},
	"labs/judge":         {rank: 32, guest: true},
	"labs/judge/phrases": {rank: 30, guest: true},
	"labs/prompt":        {rank: 32, guest: true},
	"labs/proof":         {rank: 30, guest: true},
	// What a lab's steps share: words, then the places and what is found there, then the reference solution.
	"labs/catalog/*/text":     {rank: 35, guest: true},
	"labs/catalog/*/ground":   {rank: 36, guest: true},
	"labs/catalog/*/solution": {rank: 37, guest: true},
	// The author's proof of a lab is data, which its program tells.
	"labs/catalog/*/proof": {rank: 35, guest: true},
	// The list of all labs.
	"labs/catalog": {rank: 41, guest: true},
	// The stand-in for a guest, for the labs' tests.
	"labs/labtest/resource": {rank: 38},
	"labs/labtest":          {rank: 39},
	"labs/labtest/tools":    {rank: 39},
	// A guest without a machine, where labs are proved.
	"labs/testbed": {rank: 39},

	"cmd/internal/calm":           {rank: 50},
	"cmd/internal/cli":            {rank: 50, guest: true},
	"cmd/internal/ui":             {rank: 51, guest: true},
	"cmd/internal/ui/verdict":     {rank: 52, guest: true},
	"cmd/internal/ui/page":        {rank: 52},
	"cmd/internal/labcmd":         {rank: 53, guest: true},
	"cmd/internal/labctl/factory": {rank: 53},
	"cmd/internal/labctl/labrun":  {rank: 53},
	"cmd/internal/labctl/limits":  {rank: 53},
	"cmd/internal/labctl/image":   {rank: 54},
	"cmd/internal/labctl/boot":    {rank: 54},
	"cmd/internal/labctl/up":      {rank: 55},
	"cmd/internal/labctl/session": {rank: 55},
	"cmd/internal/labctl/lab":     {rank: 55},
	"cmd/internal/labctl/guide":   {rank: 55},
	"cmd/internal/labctl/doctor":  {rank: 55},
	"cmd/internal/labctl/bundle":  {rank: 55},
	"cmd/internal/labctl/about":   {rank: 55},
	"cmd/internal/labctl/author":  {rank: 56},
	"cmd/internal/labctl":         {rank: 57},
	"cmd/internal/labctl/wire":    {rank: 58},
	"cmd/labctl":                  {rank: 59},
	"cmd/labctl-agent":            {rank: 59, guest: true},
	"cmd/labctl-probe":            {rank: 59, guest: true},
	"cmd/labctl-testbed":          {rank: 59},
	"cmd/lab-*":                   {rank: 59, guest: true},

	"test/*": {rank: 60}, // programs that measure and try the others
}

// behindTheWall reports whether a package belongs to the host, so that no guest program may have it.
func behindTheWall(pkg string) bool {
	if r, ok := lookup(pkg); ok && r.guest {
		return false
	}
	if pkg == "config" || strings.HasPrefix(pkg+"/", "images/") {
		return true
	}
	return strings.HasPrefix(pkg+"/", "provision/") && pkg != "provision/run"
}

// owners says which packages may import a library, by the start of its path. Tests may import what they like.
var owners = []struct {
	library string
	may     []string
}{
	{"github.com/spf13/viper", []string{"config"}},
	{"github.com/go-viper/mapstructure", []string{"config"}},
	{"github.com/spf13/cobra", []string{"cmd/"}},
	{"github.com/spf13/pflag", []string{"cmd/"}},
	{"github.com/melbahja/goph", []string{"provision/ssh"}},
	{"golang.org/x/crypto/ssh", []string{"provision/ssh", "bootstrap/identity"}},
	{"github.com/pulumi/", []string{"provision/stack"}},
	{"github.com/argoproj/", []string{"labs/argo"}},
	{"k8s.io/client-go", []string{"labs/kube", "labs/argo", "bootstrap/argocd", "labs/labtest/tools", "labs/testbed", "provision/kubevirt"}},
	{"github.com/google/go-containerregistry", []string{"images/", "labs/testbed"}},
	{"github.com/rogpeppe/go-internal/testscript", []string{"-"}},
	{"github.com/stretchr/testify", []string{"provision/run/runtest", "provision/drivertest", "labs/labtest"}},
}

// imports maps each package, by its path below the module, to what its non-test files import.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == ".." {
				return nil
			}
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if nested == nil || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			return err
		}
		if pkg == "." {
			return nil // the module's root holds no package that ships
		}
		if found[pkg] == nil {
			found[pkg] = map[string]bool{}
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[pkg][name] = true
		}
		return nil
	})
	require.NoError(t, err)
	all := map[string][]string{}
	for pkg, names := range found {
		all[pkg] = slices.Sorted(maps.Keys(names))
	}
	return all
}

func lookup(pkg string) (row, bool) {
	if r, ok := table[pkg]; ok {
		return r, true
	}
	for pattern, r := range table {
		if match, err := path.Match(pattern, pkg); match && err == nil {
			return r, true
		}
	}
	return row{}, false
}

// violations are the rules that the imports break, in words.
func violations(all map[string][]string) []string {
	var broken []string
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		own, ok := lookup(pkg)
		if !ok {
			say("%s has no row in the table of layers", pkg)
			continue
		}
		for _, name := range all[pkg] {
			inner, isOurs := strings.CutPrefix(name, module+"/")
			if !isOurs {
				for _, o := range owners {
					if strings.HasPrefix(name, o.library) && !slices.ContainsFunc(o.may, func(owner string) bool {
						return pkg == owner || strings.HasPrefix(pkg, strings.TrimSuffix(owner, "/")+"/")
					}) {
						say("%s imports %s, which only %s may", pkg, name, strings.Join(o.may, ", "))
					}
				}
				continue
			}
			other, ok := lookup(inner)
			if ok && other.rank >= own.rank {
				say("%s (%d) imports %s (%d), which is not below it", pkg, own.rank, inner, other.rank)
			}
			if own.guest && behindTheWall(inner) {
				say("%s runs in a guest and imports %s, which belongs to the host", pkg, inner)
			}
			if own.guest && ok && !other.guest && inner != "provision/run" && inner != "config/layout" && !behindTheWall(inner) {
				say("%s runs in a guest and imports %s, which does not", pkg, inner)
			}
		}
	}
	return broken
}

func TestLayers(t *testing.T) {
	all := imports(t)
	require.Contains(t, all, "cmd/internal/cli", "the walk found the tree")
	for _, v := range violations(all) {
		t.Error(v)
	}
}

// The rules must be able to fail.
func TestLayerRulesFindWhatTheyForbid(t *testing.T) {
	for name, tc := range map[string]struct {
		pkg, imports, want string
	}{
		"new package":      {"labs/newlab", "fmt", "labs/newlab has no row in the table of layers"},
		"upwards":          {"labs/check", module + "/labs", "labs/check (10) imports labs (20), which is not below it"},
		"own layer":        {"images", module + "/provision", "images (20) imports provision (20), which is not below it"},
		"host in guest":    {"labs/catalog/ci", module + "/config", "labs/catalog/ci runs in a guest and imports config, which belongs to the host"},
		"driver in guest":  {"cmd/lab-ci", module + "/provision/ssh", "cmd/lab-ci runs in a guest and imports provision/ssh, which belongs to the host"},
		"labctl in guest":  {"cmd/lab-ci", module + "/cmd/internal/labctl/labrun", "cmd/lab-ci runs in a guest and imports cmd/internal/labctl/labrun, which does not"},
		"viper":            {"cmd/labctl", "github.com/spf13/viper", "cmd/labctl imports github.com/spf13/viper, which only config may"},
		"argo types":       {"labs/catalog/ci", "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1", "which only labs/argo may"},
		"tests in program": {"provision/ssh", "github.com/stretchr/testify/require", "which only provision/run/runtest, provision/drivertest, labs/labtest may"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := violations(map[string][]string{tc.pkg: {tc.imports}})
			require.Len(t, broken, 1)
			require.Contains(t, broken[0], tc.want)
		})
	}
	require.Empty(t, violations(map[string][]string{"labs": {module + "/labs/check", module + "/provision/run", "fmt"}}))
}
