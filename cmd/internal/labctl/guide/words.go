package guide

// words are what a guide says around a lab's text.
type words struct {
	language                                string
	Goal, Why, Steps, Note, References      string
	Passed, Open, Foreign, Hint, Last, Next string
}

// all is every language that labs are written in.
var all = []words{
	{
		language: "en", Goal: "Goal", Why: "Why", Steps: "Steps", Note: "Good to know", References: "References",
		Passed: "passed", Open: "not passed yet", Foreign: "[in Korean: not translated yet]",
		Hint: "Hint %d of %d", Last: "That was the last hint.", Next: "`labctl hint --lab %[1]s` gives a hint, `labctl verify --lab %[1]s` checks the work.",
	},
	{
		language: "ja", Goal: "目標", Why: "なぜ行うのか", Steps: "ステップ", Note: "補足", References: "参考資料",
		Passed: "合格", Open: "未合格", Foreign: "［韓国語の原文：未翻訳］",
		Hint: "ヒント %d / %d", Last: "ヒントはこれで最後です。", Next: "ヒントは `labctl hint --lab %[1]s`、作業の確認は `labctl verify --lab %[1]s` で行います。",
	},
	{
		language: "ko", Goal: "목표", Why: "왜 하는가", Steps: "단계", Note: "알아 둘 점", References: "참고 자료",
		Passed: "통과", Open: "아직 통과하지 않음", Foreign: "[원문]",
		Hint: "힌트 %d / %d", Last: "마지막 힌트입니다.", Next: "힌트는 `labctl hint --lab %[1]s`, 작업 확인은 `labctl verify --lab %[1]s`입니다.",
	},
	{
		language: "zh", Goal: "目标", Why: "为什么要做", Steps: "步骤", Note: "须知", References: "参考资料",
		Passed: "已通过", Open: "尚未通过", Foreign: "［韩文原文：尚未翻译］",
		Hint: "提示 %d / %d", Last: "这是最后一条提示。", Next: "用 `labctl hint --lab %[1]s` 获取提示，用 `labctl verify --lab %[1]s` 检查结果。",
	},
}

// wordsIn are those of a language; English where it is none of them.
func wordsIn(language string) words {
	for _, w := range all {
		if w.language == language {
			return w
		}
	}
	return all[0]
}
