BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE autotune_about (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_autotune_about PRIMARY KEY ("key")
);
INSERT INTO "autotune_about" VALUES('autotune','0.1.0');
INSERT INTO "autotune_about" VALUES('optuna','5.0.0 v3.2.0.a');
CREATE TABLE autotune_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT autotune_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "autotune_alembic_version" VALUES('0001');
CREATE TABLE autotune_bundle (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	written_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_bundle PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_bundle_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id)
);
INSERT INTO "autotune_bundle" VALUES(1,1,'/home/user/project/autotune-ended',1.79542712414337897299e+09);
CREATE TABLE autotune_environment (
	id INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	environment TEXT NOT NULL, 
	CONSTRAINT pk_autotune_environment PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_environment_sha256 UNIQUE (sha256)
);
INSERT INTO "autotune_environment" VALUES(1,'4f059dcf5e16b8a504eb34ca50262002aec2999b4c459a88752c42ba3ccc1580','{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}}');
CREATE TABLE autotune_owner (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	machine VARCHAR(128) NOT NULL, 
	hostname VARCHAR(255) NOT NULL, 
	process INTEGER NOT NULL, 
	process_start BIGINT NOT NULL, 
	registered_at DOUBLE NOT NULL, 
	heartbeat_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_owner PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_owner_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT uq_autotune_owner_process UNIQUE (study_id, machine, hostname, process, process_start)
);
INSERT INTO "autotune_owner" VALUES(1,1,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',20903,3522011,1.79542703710015034675e+09,1.79542705868797016141e+09);
INSERT INTO "autotune_owner" VALUES(2,2,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',22274,3533696,1.79542715642919874187e+09,1.79542715642920184138e+09);
CREATE TABLE autotune_repeat (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	round INTEGER NOT NULL, 
	configuration TEXT NOT NULL, 
	run_directory TEXT NOT NULL, 
	finished_at DOUBLE NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	samples_per_s DOUBLE, 
	peak_bytes BIGINT, 
	outcome TEXT NOT NULL, 
	environment_id INTEGER, 
	CONSTRAINT pk_autotune_repeat PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_repeat_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_repeat_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id)
);
INSERT INTO "autotune_repeat" VALUES(1,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":8}','/home/user/project/.autotune/runs/ended/round-1',1.79542706851116108893e+09,'measured',1.49321567150417486118e+04,342712320,'{"kind":"measured","measurement":{"step_times_s":[0.0008581649963161908,0.0004950760048814118,0.008915389000321738,0.0008518260001437739,0.000493131999974139,0.00046267799916677177,0.00045582700113300234,0.00045435599895427004,0.00046330799523275346,0.012870447004388552,0.0009704920012154616,0.0004921309955534525,0.0004708300039055757,0.0004707589978352189,0.00045462600246537477,0.000445432000560686,0.008938612998463213,0.0006967259978409857,0.00047618800454074517,0.0004845099974772893,0.00045529600174631923,0.010179336997680366,0.0005346449979697354,0.0005087860045023263,0.000459742994280532,0.0004864729999098927,0.000450008999905549,0.00048054400394903496,0.009031761997903232,0.0005049000028520823,0.00046605299576185644,0.0004454520021681674,0.0005178999999770895,0.0004576799983624369,0.00043789000483229756,0.00789493299816968,0.000992665001831483,0.0008654560006107204,0.0006552339982590638,0.0006446979969041422,0.0006210030041984282,0.01689768099458888,0.001200884005811531,0.0007951519946800545,0.0005904979989281856,0.0005388600038713776,0.0036941899961675517,0.0011344560043653473,0.0006040779990144074,0.0005806330009363592,0.000506862998008728,0.0005143540038261563,0.0005275340008665808,0.00048534199595451355,0.012581786999362521,0.0012674440004047938,0.0029852860025130212,0.0008683609994477592,0.0006544619973283261,0.000536867999471724],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342712320},"warmup_steps":5,"warmup_s":0.009367750993988011,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 3.86x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_repeat" VALUES(2,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":16}','/home/user/project/.autotune/runs/ended/round-1-2',1.79542707835900926588e+09,'measured',1.8613037834255868802e+04,342794240,'{"kind":"measured","measurement":{"step_times_s":[0.001050550999934785,0.005318294002790935,0.0011794620004366152,0.0009644139936426654,0.0008984250016510487,0.0050016930035781115,0.0009300919991801493,0.0008370639989152551,0.0008620610024081543,0.005653651998727582,0.002640414000779856,0.004988403001334518,0.0009660349969635718,0.0008571639991714619,0.0009472579986322671,0.005450659999041818,0.0010667150054359809,0.0007786669957567938,0.0007764840047457255,0.0051423319964669645,0.0010397049991297536,0.0006966560031287372,0.0006710369998472743,0.005566251995333005,0.0007939600036479533,0.0006164759979583323,0.0005570780049310997,0.0005452699988381937,0.0005110790007165633,0.003567471998394467,0.0007900139971752651,0.0008704540014150552,0.000553040998056531,0.0005165280017536134,0.00063040699751582,0.0008048060044529848,0.000510598998516798,0.005420845001935959,0.0008935480000218377,0.0007298150012502447,0.0006370969931595027,0.006632566000916995,0.0009131970000453293,0.0006785890000173822,0.003794709002249874,0.0007140009984141216,0.0043719070017687045,0.0008837130008032545,0.0006571970006916672,0.0006537410008604638,0.000559791995328851,0.004684242005168926,0.00087759400048526,0.0005722399946535006,0.0004965379994246177,0.0005314900045050308,0.0005093969957670197,0.0005242190018179826,0.004989704997569788,0.0007859480028855614],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342794240},"warmup_steps":12,"warmup_s":0.045480558001145255,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["step times had not settled after 12 warm-up steps","steps are uneven: the mean step takes 2.07x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_repeat" VALUES(3,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16}','/home/user/project/.autotune/runs/ended/round-2',1.79542708870900034898e+09,'measured',2.15604947042116946239e+04,342884352,'{"kind":"measured","measurement":{"step_times_s":[0.0010061050052172504,0.0038572819976252504,0.00108902899955865,0.0006026249975548126,0.0005067130041425116,0.006993233000684995,0.0010523139935685322,0.0006233560052351095,0.0005085259981569834,0.0004962469974998385,0.0004898879997199401,0.00524005700572161,0.0006952439944143407,0.0006932700052857399,0.000657666998449713,0.0005127219992573373,0.0051392370005487464,0.0008511549967806786,0.0005207240028539672,0.0005091970015200786,0.00048805499682202935,0.009202585999446455,0.0016173840049305,0.0008328569965669885,0.0007900540003902279,0.009474871003476437,0.0012623559960047714,0.0008260870017693378,0.0007090739964041859,0.005512051000550855,0.0017603560045245104,0.0008034439961193129,0.000873278004291933,0.000728813000023365,0.0005903679993934929,0.0004924509994452819,0.0004829679965041578,0.0004922820007777773,0.004766623002069537,0.0012332429978414439,0.0006074530028854497,0.0006314479978755116,0.0005195319972699508,0.0004895080055575818,0.005440223998448346,0.0007342109965975396,0.0005059420000179671,0.0005970370038994588,0.000529356999322772,0.009176266998110805,0.001352079001662787,0.0006478829964180477,0.0005347650003386661,0.000493323001137469,0.005504310000105761,0.0009631610009819269,0.0009112039988394827,0.0007499850034946576,0.0035753129996010102,0.0009095310015254654],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342884352},"warmup_steps":11,"warmup_s":0.029883909999625757,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 2.44x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_repeat" VALUES(4,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8}','/home/user/project/.autotune/runs/ended/round-2-2',1.79542709695189857486e+09,'measured',1.72263434361361505572e+04,342786048,'{"kind":"measured","measurement":{"step_times_s":[0.0008587359989178367,0.002889784002036322,0.0006234669999685138,0.0005595309994532727,0.0005458109953906387,0.000476127999718301,0.0005195220001041889,0.0004683959996327758,0.0004505400065681897,0.00045387399586616084,0.00044254800013732165,0.00043799100239994004,0.000506862998008728,0.002631299998029135,0.0005418360015028156,0.0017454629996791482,0.0004936640034429729,0.0004590620010276325,0.00044778599840356037,0.000464769997051917,0.000510748999658972,0.000441807002061978,0.0004916510006296448,0.00044846600212622434,0.0004611849944922142,0.0023673579999012873,0.0019023480053874664,0.0005624849945888855,0.00046896700223442167,0.00045393499749479815,0.0004475450041354634,0.00044510099542094395,0.0005180400039535016,0.00045502700231736526,0.0005114699961268343,0.0004547850039671175,0.0004421779958647676,0.0004362679974292405,0.00043799100239994004,0.00044317800347926095,0.0023402879960485734,0.0004788820006069727,0.0005185199988773093,0.00045213200064608827,0.00045060000411467627,0.000493172999995295,0.0004492369989748113,0.00044202699791640043,0.00043533700227271765,0.0004494179956964217,0.000435437003034167,0.00044826600060332566,0.0005232379990047775,0.0004469740015338175,0.0005025369973736815,0.0004501290022744797,0.0034064319988829084,0.0005801419974886812,0.000464040000224486,0.0004524220057646744],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342786048},"warmup_steps":4,"warmup_s":0.0044950299998163246,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 1.54x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_repeat" VALUES(5,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":8}','/home/user/project/.autotune/runs/ended/round-3',1.795427105851164341e+09,'measured',8081.85709141795,342712320,'{"kind":"measured","measurement":{"step_times_s":[0.005763053995906375,0.001174404998891987,0.0008450260065728799,0.000853958998050075,0.0015172749990597367,0.003350459002831485,0.0011462929978733882,0.0009060369993676431,0.0008438840013695881,0.005160718996194191,0.0011562979998416267,0.0031706320005469024,0.0009222610024153255,0.0008242249969043769,0.0008456159994238988,0.005271054003969766,0.004096908000065014,0.0010392139956820756,0.0009231520016328432,0.0008785059981164522,0.005310341002768837,0.0010025800002040341,0.0008673389966133982,0.0008285910007543862,0.005235140000877436,0.000949852001213003,0.0008590060024289414,0.0008589369972469285,0.004593976998876315,0.0011439000008977018,0.0008774140005698428,0.0008481499971821904,0.0009013300004880875,0.010166948006371967,0.0009428220000700094,0.0008404189939028583,0.0056688140030018985,0.0008996670003398322,0.000880307998158969,0.005297882999002468,0.002027672999247443,0.0009771629993338138,0.006036671002220828,0.0010762390011223033,0.0008573439990868792,0.0009114950007642619,0.0008219009978347458,0.0008177550043910742,0.0008274499996332452,0.0008753809961490333,0.0055032980017131194,0.002918546997534577,0.00109522800630657,0.000864253997860942,0.0008438040022156201,0.008603135000157636,0.006512677995488048,0.0010611879988573492,0.005412162005086429,0.0013929599954281002],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342712320},"warmup_steps":6,"warmup_s":0.024214975004724693,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 2.31x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_repeat" VALUES(6,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":16}','/home/user/project/.autotune/runs/ended/round-3-2',1.79542712066129255292e+09,'measured',2.62242846633049121003e+04,342827008,'{"kind":"measured","measurement":{"step_times_s":[0.0009231019939761609,0.0005394610052462667,0.013957953000499401,0.002590048999991268,0.0006452089946833439,0.0006048990035196766,0.0004995619965484366,0.0004859120017499663,0.00047008899855427444,0.0005757350008934736,0.00979743999778293,0.0008069190007518046,0.0005150159995537251,0.005229551003139932,0.000939065997954458,0.0005573880043812096,0.0075749069947050884,0.0006153440044727176,0.0005027579973102547,0.00047891100257402286,0.0005773279990535229,0.00048269800026901066,0.007247540001117159,0.0008765729944570921,0.005023825004172977,0.0007207919989014044,0.0006043679968570359,0.0004901280044578016,0.0005954649968771264,0.005577087998972274,0.0005526710010599345,0.0004938940037391149,0.0005787199988844804,0.0004991820023860782,0.0005714789949706756,0.012757369004248176,0.0011299289981252514,0.0005519100013771094,0.00048456999502377585,0.0004730830041808076,0.0005407240023487248,0.004657350997149479,0.0010352690005674958,0.0005796309997094795,0.0036944199964636937,0.0007719170025666244,0.0005242889965302311,0.0005362070005503483,0.0004893270015600137,0.0038597360035055317,0.001993933998164721,0.006784652003261726,0.001122247995226644,0.0005650599996442907,0.0005676830041920766,0.0016735370008973405,0.0006155449955258518,0.0006732699985150248,0.0007269609996001236,0.0007587270010844804],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342827008},"warmup_steps":4,"warmup_s":0.019184308999683708,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 3.27x the median (evaluation or logging inside?)"]}}',1);
CREATE TABLE autotune_study (
	id INTEGER NOT NULL, 
	optuna_study_id INTEGER NOT NULL, 
	name VARCHAR(512) NOT NULL, 
	spec TEXT NOT NULL, 
	facts TEXT, 
	verdict TEXT, 
	created_at DOUBLE NOT NULL, 
	autotune VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_autotune_study PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_study_name UNIQUE (name)
);
INSERT INTO "autotune_study" VALUES(1,1,'ended','{"script":"/home/user/project/train.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","engine":"aot","memory_limit_bytes":null,"time_budget_s":150.0,"max_trials":2,"own_batch_size":null,"batch_sizes":[8,16],"devices":[],"sampler":"tpe","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":3,"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"min_measure_s":0.5,"max_measure_s":10.0}}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":8},"batch_size":8,"batch_control":{"how":"loaders","loaders":[0],"sites":["114c2327ef28a145"],"reason":""},"clusters":[{"cluster_id":"gelu+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":6.354499782901257e-05,"calls_per_step":1.0,"is_layer":false,"note":""}],"dimensions":{"batch":8},"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"roots":[{"name":"Sequential","num_parameters":1153,"num_trainable":1153,"num_graphs":1,"applied_by":"aot"}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd","notes":[]}','{"kind_of_answer":"baseline_best","winner":{"engine":"eager","plans":[],"level":0,"batch_size":8},"reason":"Your baseline stays: batch 16 without plans came to 1.44x in 3 rounds beside it (21560 vs 14932 samples/s), but rounds vary so much here that anything under 3.20x may be chance.","stop_reason":"2 trials were run, as many as this study may.","memory_limit_bytes":19399106560,"comparisons":[{"configuration":{"engine":"eager","plans":[],"level":0,"batch_size":16},"samples_per_s":21560.494704211695,"baseline_samples_per_s":14932.156715041749,"speedup":1.4438968941769115,"speedup_low":1.0804984762587986,"speedup_high":3.2448339987541033,"p_value":0.05,"effect":1.0,"peak_bytes":342884352,"baseline_peak_bytes":342786048}]}',1.7954270167853548526e+09,'0.1.0');
INSERT INTO "autotune_study" VALUES(2,2,'killed','{"script":"/home/user/project/own.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","engine":"aot","memory_limit_bytes":null,"time_budget_s":120.0,"max_trials":60,"own_batch_size":null,"batch_sizes":null,"devices":[],"sampler":"gp","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":1,"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"min_measure_s":0.5,"max_measure_s":10.0}}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":null},"batch_size":8,"batch_control":{"how":"none","loaders":[],"sites":[],"reason":"no DataLoader feeds training; pass the script''s batch size option as {batch_size}, as in `-- --batch-size={batch_size}`, or let the script ask autotune.batch_size()"},"clusters":[{"cluster_id":"gelu+","strategy":1,"frequency":2,"saving_bytes":4096,"saving_formula":"512*batch","recompute_time_s":0.00010863099305424839,"calls_per_step":1.0,"is_layer":false,"note":""}],"dimensions":{"batch":8},"split":{"parameters":21252,"gradients":21252,"optimizer_state":0,"buffers":0,"activations":8192},"roots":[{"name":"Sequential","num_parameters":5313,"num_trainable":5313,"num_graphs":1,"applied_by":"aot"}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"dffe7fde1724ea814a75e4ad1b4ac45e3333f42fc15cf054663005315d4ee8b6","notes":[]}',NULL,1.79542713157099986069e+09,'0.1.0');
CREATE TABLE autotune_trial (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	optuna_trial_id INTEGER NOT NULL, 
	owner_id INTEGER NOT NULL, 
	configuration TEXT, 
	state VARCHAR(16) NOT NULL, 
	recovered BOOLEAN NOT NULL, 
	told BOOLEAN NOT NULL, 
	run_directory TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	finished_at DOUBLE, 
	kind VARCHAR(32), 
	samples_per_s DOUBLE, 
	peak_bytes BIGINT, 
	outcome TEXT, 
	environment_id INTEGER, 
	CONSTRAINT pk_autotune_trial PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_trial_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_trial_owner_id_autotune_owner FOREIGN KEY(owner_id) REFERENCES autotune_owner (id), 
	CONSTRAINT fk_autotune_trial_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id), 
	CONSTRAINT uq_autotune_trial_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "autotune_trial" VALUES(1,1,0,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8}','finished',0,1,'/home/user/project/.autotune/runs/ended/discovery',1.79542703731177544592e+09,1.79542703731177544592e+09,'measured',7.19028091326732192098e+03,342781952,'{"kind":"measured","measurement":{"step_times_s":[0.02828599500207929,0.0008642839966341853,0.003809001005720347,0.0005812439994770102,0.0004929719943902455,0.0004717110059573315,0.007910880995041225,0.0008163329985109158,0.0008547600009478629,0.0007309870052267797,0.009321541998360772,0.0011172399972565472,0.0006581190027645789,0.0007670289996895008,0.016448533999209758,0.004945168999256566,0.0015562929984298535,0.0007740900036878884,0.011995686996669974,0.0018156180012738332,0.0008802480006124824,0.012771018999046646,0.0011604840037762187,0.015479173998755869,0.004992037996998988,0.0010672060016077012,0.008002782997209579,0.003093497005465906,0.0007325889964704402,0.007303233003767673,0.0013298859994392842,0.0009897709969663993,0.0009144089999608696,0.015117847004148643,0.008611356999608688,0.00777425299747847,0.01178269999945769,0.014491955997073092,0.0013537420018110424,0.0075149480035179295,0.001280101998418104,0.016476625998620875,0.0011079859978053719,0.0006920689993421547,0.0006065810011932626,0.0005027170045650564,0.00047465600073337555,0.007054873996821698,0.0015140399991651066,0.0006947720030439086,0.000558339997951407,0.0005087559984531254,0.0004771790045197122,0.000493863997689914,0.00047479599743383005,0.00046154500159900635,0.0049171680002473295,0.000717495997378137,0.0005711590056307614,0.00051437399815768],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342781952},"warmup_steps":7,"warmup_s":0.039022090000798926,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 3.87x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(2,1,1,2,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16}','finished',0,1,'/home/user/project/.autotune/runs/ended/trial-0001',1.79542703744582772258e+09,1.79542704808837199218e+09,'measured',2.73303151267841640216e+04,342966272,'{"kind":"measured","measurement":{"step_times_s":[0.003548793996742461,0.0006353040007525124,0.0007567550055682659,0.0024309629952767864,0.000699037998856511,0.0006758750023436733,0.0027931910008192062,0.0008418610013904981,0.004958838995662518,0.0014326990058179945,0.0008835129992803559,0.0008886110008461401,0.004681906997575425,0.0013853089985786937,0.0007528790010837838,0.0006935909987078048,0.0008128379995469004,0.005107689998112619,0.0007837650045985356,0.0005249599998933263,0.0004884959998889826,0.0004957869969075546,0.0004960470032528974,0.0005976379979983903,0.0004886559981969185,0.000471010003820993,0.0004638089958461933,0.00047480600187554955,0.0005583200036198832,0.0004778399961651303,0.0004769590013893321,0.00453281599766342,0.0007698940025875345,0.0005151549994479865,0.0004895680031040683,0.0004762779935845174,0.00047321300371550024,0.00047847099631326273,0.000464490003651008,0.0052492809991235845,0.0005837979988427833,0.0005073139982414432,0.0004837280066567473,0.0004818659945158288,0.00047588800225639716,0.004927551999571733,0.000726520003809128,0.000531729994690977,0.0004876849998254329,0.005823805004183669,0.0012292460014577955,0.000530888995854184,0.000484050004160963,0.00048666299699107185,0.00047551700117764995,0.00046875599946361035,0.005117424996569753,0.0006596599996555597,0.0005288860047585331,0.0005870629975106567],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":342966272},"warmup_steps":4,"warmup_s":0.012290524995478336,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 2.27x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(3,1,2,3,1,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":8}','finished',0,1,'/home/user/project/.autotune/runs/ended/trial-0002',1.79542705049179100989e+09,1.79542705670702838899e+09,'measured',8073.36671902074,384061440,'{"kind":"measured","measurement":{"step_times_s":[0.001426559996616561,0.0008468879968859255,0.0009251850060536526,0.0010804759949678555,0.0009977930021705106,0.0022903029966983013,0.0008393180032726377,0.005221999999776017,0.0013389899977482855,0.0009641130018280819,0.0008399979997193441,0.0009767310039023869,0.0008901229957700707,0.0007986470009200275,0.0007762739987811074,0.006663943000603467,0.0009283190011046827,0.0009208789997501299,0.0008546500030206516,0.0007855669973650947,0.0007735800027148798,0.0010397149962955154,0.000770986000134144,0.0009727950018714182,0.0010445430016261525,0.0009098320006160066,0.0058892919987556525,0.0012566269942908548,0.001055158005328849,0.0010461049969308078,0.0011543750006239861,0.0010049740012618713,0.0010378419974585995,0.005214750002778601,0.0017906709981616586,0.0012124720014980994,0.001116979998187162,0.0010418780002510175,0.0010514820023672655,0.0010495999958948232,0.0011757070024032146,0.0011014670017175376,0.0008921159969759174,0.0008195179980248213,0.005804937005450483,0.0015006199973868206,0.0008683999985805713,0.0009107740042963997,0.0009396559980814345,0.0008448759981547482,0.0009840319980867207,0.004712663001555484,0.0013807920040562749,0.0009389759943587705,0.0011271750045125373,0.0009112639963859692,0.0009400370036019012,0.000824445000034757,0.0007641359989065677,0.0007545909975306131],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":384061440},"warmup_steps":4,"warmup_s":1.1924620139980107,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":2048},"saved_bytes":2048,"notes":["steps are uneven: the mean step takes 1.49x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(4,2,0,4,2,'{"engine":"eager","plans":[],"level":0,"batch_size":null}','finished',0,1,'/home/user/project/.autotune/runs/killed/discovery',1.79542715708907914167e+09,1.79542715708907914167e+09,'measured',6.32115746945442151614e+03,341753856,'{"kind":"measured","measurement":{"step_times_s":[0.006556733998877462,0.0018268650019308552,0.0009184949958580546,0.0006493550026789308,0.000681842997437343,0.0005968670011498034,0.000736435002181679,0.0006933799959369935,0.009620467004424427,0.004421860998263583,0.0009864059975370765,0.0058976439977413975,0.0013191610050853342,0.0007486719987355173,0.0006989489993429743,0.02137263100303244,0.004026324000733439,0.0010111619994859211,0.0033088179989135824,0.0007748809948679991,0.01876354400155833,0.0010675770026864484,0.000741821997507941,0.0006997800010140054,0.019287793002149556,0.009728747994813602,0.012972799006092828,0.007927450998977292,0.0011085570004070178,0.009074474997760262,0.00969364600314293,0.0011596729964367114,0.01110309999785386,0.006101408005633857,0.008783602999756113,0.0012120209939894266,0.0008631630043964833,0.0007187879964476451,0.008943790999182966,0.005560603000049014,0.0008689520036568865,0.0008158920027199201,0.0008320769993588328,0.017282993998378515,0.005240567996224854,0.0014355330058606341,0.006224078999366611,0.0008802989977994002,0.0008411500020883977,0.009380749994306825,0.0009496410057181492,0.0008356019970960915,0.0008210700034396723,0.00917917100014165,0.00088091899669962,0.0008018220032681711,0.0007851669943192974,0.011537836006027646,0.0038755089990445413,0.014274257999204565],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":341753856},"warmup_steps":8,"warmup_s":0.02955014399776701,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":true,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":21252,"gradients":21252,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"notes":["steps are uneven: the mean step takes 3.67x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(5,2,1,5,2,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":null}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0001',1.79542715738249754903e+09,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'ended');
INSERT INTO "studies" VALUES(2,'killed');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MINIMIZE',1,1);
INSERT INTO "study_directions" VALUES(3,'MAXIMIZE',2,0);
INSERT INTO "study_directions" VALUES(4,'MINIMIZE',2,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["samples_per_s", "peak_bytes"]');
INSERT INTO "study_system_attributes" VALUES(2,2,'study:metric_names','["samples_per_s", "peak_bytes"]');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(2,1,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(3,2,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(4,2,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(5,3,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(6,3,'gelu+',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(7,4,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(8,5,'gelu+',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'constraints:memory','-0.9823300134498565');
INSERT INTO "trial_system_attributes" VALUES(2,2,'constraints:memory','-0.9823205119813518');
INSERT INTO "trial_system_attributes" VALUES(3,3,'constraints:memory','-0.9802021067922831');
INSERT INTO "trial_system_attributes" VALUES(4,4,'constraints:memory','-0.9818022760895438');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(2,1,'configuration','"batch 8, no plans"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(4,2,'origin','"seed"');
INSERT INTO "trial_user_attributes" VALUES(5,2,'configuration','"batch 16, no plans"');
INSERT INTO "trial_user_attributes" VALUES(6,2,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(7,2,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(8,3,'origin','"seed"');
INSERT INTO "trial_user_attributes" VALUES(9,3,'configuration','"batch 8, gelu+:1:-1"');
INSERT INTO "trial_user_attributes" VALUES(10,3,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(11,3,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(12,4,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(13,4,'configuration','"no plans"');
INSERT INTO "trial_user_attributes" VALUES(14,4,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(15,5,'origin','"seed"');
INSERT INTO "trial_user_attributes" VALUES(16,5,'configuration','"gelu+:1:-1"');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,7.19028091326732192098e+03,'FINITE');
INSERT INTO "trial_values" VALUES(2,1,1,342781952.0,'FINITE');
INSERT INTO "trial_values" VALUES(3,2,0,2.73303151267841640216e+04,'FINITE');
INSERT INTO "trial_values" VALUES(4,2,1,342966272.0,'FINITE');
INSERT INTO "trial_values" VALUES(5,3,0,8073.36671902074,'FINITE');
INSERT INTO "trial_values" VALUES(6,3,1,384061440.0,'FINITE');
INSERT INTO "trial_values" VALUES(7,4,0,6.32115746945442151614e+03,'FINITE');
INSERT INTO "trial_values" VALUES(8,4,1,341753856.0,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-23 09:43:57.186406','2026-11-23 09:43:57.186406');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-23 09:43:57.386830','2026-11-23 09:44:10.452829');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-23 09:44:10.480966','2026-11-23 09:44:18.739811');
INSERT INTO "trials" VALUES(4,0,2,'COMPLETE','2026-11-23 09:45:56.843929','2026-11-23 09:45:56.843929');
INSERT INTO "trials" VALUES(5,1,2,'RUNNING','2026-11-23 09:45:57.248443',NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_autotune_repeat_study_id ON autotune_repeat (study_id);
CREATE INDEX ix_autotune_bundle_study_id ON autotune_bundle (study_id);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
