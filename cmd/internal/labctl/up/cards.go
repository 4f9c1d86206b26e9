package up

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/page"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

//go:embed cards.html
var cardsBody string

var cardsPage = page.Parse("cards", cardsBody)

// card is how one learner gets in. It holds no secret: the key stays in labctl's folder.
type card struct {
	Name        string         `json:"name"`
	Email       string         `json:"email,omitempty"`
	LogIn       string         `json:"logIn"`
	SSH         string         `json:"ssh"`
	Fingerprint string         `json:"fingerprint"`
	Labs        []labrun.Known `json:"labs"`
}

// cards is the result of cards as JSON.
type cards struct {
	Schema string `json:"schema"`
	File   string `json:"file"`
	Cards  []card `json:"cards"`
}

// cardWords are what a card says, in every language that labs are written in.
var cardWords = map[string]struct{ Title, LogIn, Directly, Fingerprint, NoSecrets string }{
	"en": {"Access cards", "Log in on this machine:", "or with any SSH client:", "The machine's host key", "No card holds a secret. Whoever logs in needs an account on this machine that may read labctl's folder; from elsewhere nothing is reachable."},
	"ja": {"アクセスカード", "このマシンでログインします：", "または任意の SSH クライアントで：", "マシンのホスト鍵", "カードに秘密は書かれていません。ログインするには、labctl のフォルダを読めるこのマシンのアカウントが必要です。外部からは到達できません。"},
	"ko": {"접속 카드", "이 컴퓨터에서 로그인합니다:", "또는 아무 SSH 클라이언트로:", "머신의 호스트 키", "카드에는 비밀이 없습니다. 로그인하려면 labctl의 폴더를 읽을 수 있는 이 컴퓨터의 계정이 필요합니다. 밖에서는 닿을 수 없습니다."},
	"zh": {"访问卡", "在这台机器上登录：", "或使用任意 SSH 客户端：", "机器的主机密钥", "卡片上没有秘密。登录者需要这台机器上可以读取 labctl 文件夹的账户；从外部无法访问。"},
}

// NewCards is the command cards.
func NewCards(f *factory.Factory) *cobra.Command {
	var class, out string
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "cards [NAME...]",
		Short: "Write a page of access cards to print, one for each learner",
		Long: `Write an HTML page with a card for each instance: how to log in, its host key's fingerprint, and its labs. With a class file the cards are those of
its learners, with their e-mail addresses. No card holds a secret.`,
		Example:           "  labctl cards\n  labctl cards --learners class.csv --out class.html",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: f.CompleteInstances,
		RunE: func(cmd *cobra.Command, args []string) error {
			if class != "" && len(args) > 0 {
				return cli.Misused(cmd, "--learners names the learners, so that none can be named beside it")
			}
			return writeCards(cmd.Context(), f, args, class, out, format)
		},
	}
	cmd.Flags().StringVar(&class, "learners", "", "a class: CSV `FILE` with the columns name, email, labs")
	_ = cmd.MarkFlagFilename("learners", "csv")
	cmd.Flags().StringVar(&out, "out", "cards.html", "`FILE` to write")
	_ = cmd.MarkFlagFilename("out", "html")
	factory.LanguageFlag(cmd)
	ui.AddFormat(cmd, &format)
	return cmd
}

func writeCards(ctx context.Context, f *factory.Factory, names []string, class, out string, format ui.Format) error {
	learners, err := cardsFor(ctx, f, names, class)
	if err != nil {
		return err
	}
	doc := cards{Schema: ui.Schema("cards"), File: out}
	for _, l := range learners {
		c, err := cardOf(ctx, f, l)
		if err != nil {
			return err
		}
		doc.Cards = append(doc.Cards, c)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read this host's name: %w", err)
	}
	language := f.Language()
	w := cardWords[language]
	if err := page.Write(out, cardsPage, page.Page{Language: language, Title: w.Title, Body: struct {
		cards
		Host  string
		Time  time.Time
		Words any
	}{doc, host, time.Now(), w}}); err != nil {
		return &cli.UsageError{Msg: err.Error(), Fix: "choose another file with --out"}
	}
	if format == ui.JSON {
		return f.UI().JSON(doc)
	}
	what := "cards"
	if len(doc.Cards) == 1 {
		what = "card"
	}
	f.UI().Print("%d %s in %s", len(doc.Cards), what, out)
	return nil
}

// cardsFor are the learners that cards are wanted for: those that were named, a class's, or all there are.
func cardsFor(ctx context.Context, f *factory.Factory, names []string, class string) ([]Learner, error) {
	var learners []Learner
	if class != "" {
		rows, err := readLearners(class)
		if err != nil {
			return nil, err
		}
		return rows, checkLearners(rows)
	}
	if len(names) == 0 {
		driver, err := f.Driver()
		if err != nil {
			return nil, err
		}
		all, err := driver.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the instances: %w", err)
		}
		for _, st := range all {
			if st.Power != provision.Broken {
				names = append(names, st.Name)
			}
		}
		if len(names) == 0 {
			return nil, &cli.UsageError{Msg: "there is no instance yet", Fix: "run `labctl up` to make one"}
		}
	}
	for _, name := range names {
		learners = append(learners, Learner{Name: name})
	}
	return learners, checkLearners(learners)
}

func cardOf(ctx context.Context, f *factory.Factory, l Learner) (card, error) {
	c := card{Name: l.Name, Email: l.Email}
	st, err := f.Pick(ctx, l.Name)
	if err != nil {
		return c, err
	}
	if st.Power == provision.Broken {
		return c, &provision.BrokenError{Name: st.Name, Reason: st.Reason}
	}
	dir := f.Home().Instance(st.Name)
	private, err := os.ReadFile(dir.HostKey())
	if err != nil {
		return c, fmt.Errorf("read the host key of %s: %w", st.Name, err)
	}
	if c.Fingerprint, err = ssh.Fingerprint(private); err != nil {
		return c, fmt.Errorf("instance %s: %w", st.Name, err)
	}
	self := program()
	if filepath.IsAbs(self) || self == "labctl" {
		c.LogIn = self + " ssh " + st.Name
	} else {
		c.LogIn = "labctl ssh " + st.Name
	}
	c.SSH = run.Quote([]string{"ssh", "-p", fmt.Sprint(st.Spec.SSHPort), "-i", dir.UserKey(), "root@127.0.0.1"})
	for _, lab := range labrun.All() {
		if len(l.Labs) > 0 && !slices.Contains(l.Labs, lab.ID) {
			continue
		}
		if said, err := lab.Text(f.Language()); err == nil {
			lab.Title = said.Title
		}
		c.Labs = append(c.Labs, lab)
	}
	return c, nil
}
