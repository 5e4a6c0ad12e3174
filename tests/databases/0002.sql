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
INSERT INTO "autotune_alembic_version" VALUES('0002');
CREATE TABLE autotune_bundle (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	written_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_bundle PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_bundle_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id)
);
INSERT INTO "autotune_bundle" VALUES(1,1,'/home/user/project/autotune-ended',1.79542734079843902591e+09);
CREATE TABLE autotune_environment (
	id INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	environment TEXT NOT NULL, 
	CONSTRAINT pk_autotune_environment PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_environment_sha256 UNIQUE (sha256)
);
INSERT INTO "autotune_environment" VALUES(1,'4f059dcf5e16b8a504eb34ca50262002aec2999b4c459a88752c42ba3ccc1580','{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}}');
CREATE TABLE autotune_final (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	owner_id INTEGER, 
	ended BOOLEAN NOT NULL, 
	CONSTRAINT pk_autotune_final PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_final_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_final_owner_id_autotune_owner FOREIGN KEY(owner_id) REFERENCES autotune_owner (id), 
	CONSTRAINT uq_autotune_final_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "autotune_final" VALUES(1,1,1,1,1);
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
INSERT INTO "autotune_owner" VALUES(1,1,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',24894,3551444,1.79542731132479286195e+09,1.79542733132419204717e+09);
INSERT INTO "autotune_owner" VALUES(2,2,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',25333,3555178,1.79542735004994344705e+09,1.7954273500499455929e+09);
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
	environment_id INTEGER, final INTEGER DEFAULT '1' NOT NULL, 
	CONSTRAINT pk_autotune_repeat PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_repeat_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_repeat_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id)
);
INSERT INTO "autotune_repeat" VALUES(1,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[]}','/home/user/project/.autotune/runs/ended/final-1-round-1',1.79542731863917803761e+09,'measured',1.44002476551320833094e+04,325472256,'{"kind":"measured","measurement":{"step_times_s":[0.0010989930015057325,0.0006108480010880157,0.0006376680030371062,0.0007299649951164611,0.0006469410000136122,0.0005563970044022426,0.0005153859965503216,0.0006501059979200363,0.0006704760016873479,0.0006016440020175651,0.0006229560021893121,0.0006987979941186495,0.000577247999899555,0.0005375490000005811,0.000582386004680302,0.0008840430018608458,0.0005546949978452176,0.0007092539963196032,0.0006197710026754066,0.0005395219995989464,0.0005058910028310493,0.0005147849951754324,0.0006065720008336939,0.00052741399849765,0.0006732300025760196,0.0007428539975080639,0.000657537006190978,0.0006140229961602017,0.0005181200031074695,0.0005126309988554567,0.0005029280000599101,0.0005634869958157651,0.0004987410065950826,0.000506492993736174,0.0005053810018580407,0.000581284002691973,0.0005344239980331622,0.0005080550035927445,0.0005692259946954437,0.0005236780052655376,0.0005062429991085082,0.0005609329964499921,0.0005876830036868341,0.0005633179971482605,0.0005139429995324463,0.0006279139997786842,0.0005806920016766526,0.0005226470020716079,0.0005055509973317385,0.0004984210027032532,0.0005542839935515076,0.000503688002936542,0.0005067829988547601,0.0005967770048300736,0.0005314299996825866,0.0005194019977352582,0.0005130019999342039,0.0005021569959353656,0.0004997420037398115,0.000523718998010736],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":325472256},"warmup_steps":4,"warmup_s":0.005496048004715703,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":false,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":[]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(2,1,0,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]}','/home/user/project/.autotune/runs/ended/final-1-round-1-2',1.79542732199082088473e+09,'measured',2.05524366983419458842e+04,388132864,'{"kind":"measured","measurement":{"step_times_s":[0.0013572870011557825,0.0008389970025746152,0.0008027630028664134,0.0008735879964660853,0.0008505540026817471,0.000773619998653885,0.0007783959954394959,0.0007658490067115054,0.000745446996006649,0.0008319269982166588,0.0007575250056106597,0.0007557739954791032,0.0007432339989463799,0.0007461690038326196,0.0007963429961819202,0.0009566220032866113,0.000756002998969052,0.0007475110032828525,0.0007427239979733713,0.000799888999608811,0.0007641749980393797,0.0007450379998772405,0.0008160819998010993,0.0007581870013382286,0.000745087003451772,0.0008130189962685108,0.0007428730023093522,0.000741242001822684,0.0007457879983121529,0.0007525589971919544,0.0007983160030562431,0.0007489029958378524,0.0007515770048485138,0.0007340909942286089,0.0007448870019288734,0.0008616900013294071,0.0007611109977005981,0.0007382879994111136,0.0007548810026491992,0.0007469400006812066,0.0007954929969855584,0.0007515660036006011,0.0008347909970325418,0.0012835070010623895,0.0013278539991006255,0.001324738004768733,0.0012886149997939356,0.0013183599949115887,0.0013163859985070303,0.0012099880041205324,0.0013073129957774654,0.0010047330069937743,0.0007786169953760691,0.0007640250041731633,0.000768481993873138,0.0009094020060729235,0.0010340759981772862,0.0011325640007271431,0.0007785970010445453,0.0011487769952509552],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":388132864},"warmup_steps":4,"warmup_s":0.5777998869962175,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":false,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"saved_bytes":4096,"memory_matrix":[],"notes":[]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(3,1,1,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]}','/home/user/project/.autotune/runs/ended/final-1-round-2',1.79542732593344378467e+09,'measured',2.14940659025722707159e+04,388026368,'{"kind":"measured","measurement":{"step_times_s":[0.0012204029990243725,0.0009080599993467331,0.0008344500020029955,0.0009406579993083142,0.0007854270006646402,0.0007539910002378747,0.0008255159991676919,0.0007641859992872924,0.000745928002288565,0.0007367750004050322,0.0007409609970636666,0.000794541003415361,0.0008950099945650436,0.0010468260006746277,0.0007812710027792491,0.0009435519968974404,0.0007445570008712821,0.0008116460012388416,0.0007351120002567768,0.0007263500010594726,0.0007692829967709258,0.0007441660054610111,0.0007744409958831966,0.0007378160007647239,0.0007269299967447296,0.0007266600005095825,0.0008523670039721765,0.0007949610007926822,0.0007414119972963817,0.0007357939975918271,0.0007343510005739518,0.0007956020053825341,0.0007835849974071607,0.0007402400005958043,0.0007238050020532683,0.0007181580003816634,0.000775601998611819,0.0007341909949900582,0.0007217230013338849,0.0008187060011550784,0.0007402810006169602,0.0007336299968301319,0.0007799990053172223,0.0007383369957096875,0.0007420530018862337,0.0007235550001496449,0.0007340709998970851,0.0007830539980204776,0.0007442260030074976,0.0007244759981404059,0.0007257489996845834,0.0007259190024342388,0.0007903340010670945,0.0007484019952244125,0.0007338310024351813,0.0007252880022861063,0.00075181699503446,0.0007248370020533912,0.0007838950041332282,0.0007371159954345785],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":388026368},"warmup_steps":4,"warmup_s":0.5369588239991572,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":false,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"saved_bytes":4096,"memory_matrix":[],"notes":[]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(4,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[]}','/home/user/project/.autotune/runs/ended/final-1-round-2-2',1.79542732855194020272e+09,'measured',1.55868548671619209927e+04,325554176,'{"kind":"measured","measurement":{"step_times_s":[0.001150910000433214,0.0006615230013267137,0.0006114990028436296,0.0006204719975357875,0.000575995996769052,0.0006656690020463429,0.0005455210048239678,0.000529356999322772,0.0005369779973989353,0.0005220050006755628,0.0005141649962752126,0.0005111890059197322,0.0005758159968536347,0.0005330720014171675,0.0005141539950273,0.0005105690070195124,0.0005029669991927221,0.0005071439954917878,0.0005102479990455322,0.000505822004924994,0.000601804000325501,0.0005184010005905293,0.000506642994878348,0.0005073940046713687,0.0005738019972341135,0.0005221259998506866,0.000501636000990402,0.0005738729960285127,0.0005195220001041889,0.0005110990023240447,0.000496027001645416,0.0005051210027886555,0.0005035679932916537,0.000498461005918216,0.0005118709959788248,0.0005641079987981357,0.0005194719997234643,0.000502006005262956,0.0005067229940323159,0.0004957270066370256,0.0004969279980286956,0.0005487259986693971,0.0005014549969928339,0.0006099560050643049,0.000536257000931073,0.0005512389980140142,0.0005123520022607408,0.0005040989999542944,0.0005071839987067506,0.0005017549992771819,0.0004913099983241409,0.0005862820034963079,0.0005097569955978543,0.0005073840002296492,0.0004980200028512627,0.0005022369950893335,0.0005014650014345534,0.0005201430030865595,0.0005436279971036129,0.00052013299864484],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":325554176},"warmup_steps":4,"warmup_s":0.006569842997123487,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":false,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":[]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(5,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[]}','/home/user/project/.autotune/runs/ended/final-1-round-3',1.79542733122512221336e+09,'measured',1.59152512752910133713e+04,325586944,'{"kind":"measured","measurement":{"step_times_s":[0.0009608180043869652,0.0005892759945709258,0.0005632669999613427,0.0005444290000014007,0.0005859100056113675,0.0005752750003011897,0.0005264529972919263,0.0005144840033608489,0.000555214995983988,0.0005216760037001222,0.0004990710003767163,0.0005096979948575608,0.0005571880028583109,0.0005112489961902611,0.0005039790048613213,0.000507053999172058,0.0005058919996372424,0.000489286998345051,0.0004962669991073199,0.0004921220024698414,0.0005493259959621355,0.0005074540022178553,0.0005231070026638918,0.0004986209969501942,0.0005021270044380799,0.0004995419949409552,0.0005003940023016185,0.0004949150024913251,0.000596435995248612,0.0005065330042270944,0.0005031979962950572,0.0004929630013066344,0.0005052400010754354,0.0004970689988113008,0.0004881959976046346,0.0005159760039532557,0.0005657509973389097,0.0004956269985996187,0.0004911600044579245,0.00048651299584889784,0.0004944540050928481,0.0004953059979015961,0.0005457719962578267,0.0004928220005240291,0.0005483550048666075,0.0004919009952573106,0.0004898080005659722,0.00048632200196152553,0.0005380000002332963,0.000497059001645539,0.0004997719952370971,0.0005321810021996498,0.0005099679983686656,0.0004912900039926171,0.0004909799972665496,0.0005004129998269491,0.0004893880031886511,0.0004923409942421131,0.0004891370044788346,0.0004879650005022995],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":325586944},"warmup_steps":3,"warmup_s":0.004457093004020862,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":false,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":[]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(6,1,2,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]}','/home/user/project/.autotune/runs/ended/final-1-round-3-2',1.79542733434821581836e+09,'measured',2.12475357786215317897e+04,388186112,'{"kind":"measured","measurement":{"step_times_s":[0.0013056709940428846,0.0009016800031531602,0.0008142500009853393,0.0008757909963605925,0.0007794090051902458,0.0007721269939793274,0.0008238139998866245,0.0007733590027783066,0.0008275500003946945,0.000774872001784388,0.0007497240003431216,0.0008155719988280907,0.000739648996386677,0.0007354530025622807,0.000760841001465451,0.0009327259976998903,0.0007987270000739954,0.0007494239980587736,0.000752678002754692,0.0007427539967466146,0.0007479609994334169,0.0008759620031923987,0.0007461889981641434,0.0007447570023941807,0.0007376959983957931,0.0007519380014855415,0.0008002789982128888,0.0007386479992419481,0.0007447360039805062,0.0007729989956715144,0.0007429739998769946,0.0007797790021868423,0.0007533789976150729,0.0007520780054619536,0.0008011009995243512,0.0007509959978051484,0.0008592270023655146,0.0007781659951433539,0.0007804100023349747,0.0007597490039188415,0.0007379259986919351,0.0007305760009330697,0.0007953019958222285,0.0007313370006158948,0.0007736999978078529,0.0007486720060114749,0.0007371760002570227,0.0008470479951938614,0.0007607709994772449,0.000744326003768947,0.000735483001335524,0.0007391189938061871,0.0007854770010453649,0.0007461089990101755,0.000744135002605617,0.0007339610019698739,0.0007382069961749949,0.0007430539990309626,0.0008066090013016947,0.000747982005123049],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":388186112},"warmup_steps":4,"warmup_s":0.5660131210024701,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":false,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"saved_bytes":4096,"memory_matrix":[],"notes":[]}}',1,1);
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
INSERT INTO "autotune_study" VALUES(1,1,'ended','{"script":"/home/user/project/train.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","engine":"aot","memory_limit_bytes":null,"objective":{"goal":"throughput","max_slowdown":0.03,"target_memory_bytes":null},"time_budget_s":300.0,"max_trials":2,"own_batch_size":null,"batch_sizes":[8,16],"devices":[],"sampler":"model","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":3,"plans_first":[],"choices":[],"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"rough_interval_ratio":0.03,"fine_steps":24,"min_measure_s":0.5,"max_measure_s":10.0,"rate_to_beat":null}}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[]},"batch_size":8,"batch_control":{"how":"loaders","loaders":[0],"sites":["114c2327ef28a145"],"reason":""},"clusters":[{"cluster_id":"addmm+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":3.006600309163332e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":"runs costly operators again"},{"cluster_id":"gelu+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":2.680000034160912e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":""}],"dimensions":{"batch":8},"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"roots":[{"name":"Sequential","num_parameters":1153,"num_trainable":1153,"num_graphs":1,"applied_by":"aot","wrapped_by":[]}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd","memory_matrix":[{"phase":"pre_forward","step":63,"allocated":325951488,"max_allocated":325951488,"peak":325951488,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":63,"allocated":325951488,"max_allocated":325955584,"peak":325955584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":63,"allocated":325951488,"max_allocated":325955584,"peak":325951488,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":63,"allocated":325955584,"max_allocated":325963776,"peak":325963776,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":64,"allocated":325955584,"max_allocated":325963776,"peak":325955584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":64,"allocated":325955584,"max_allocated":325963776,"peak":325955584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":64,"allocated":325955584,"max_allocated":325963776,"peak":325955584,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":64,"allocated":325963776,"max_allocated":325967872,"peak":325967872,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[],"graphs":[{"names":["primals_1","primals_2","primals_3","primals_4","primals_5","primals_6","tangents_1","t","addmm","gelu","t_1","addmm_1","t_2","mm","t_3","mm_1","t_4","sum_1","view","t_5","gelu_backward","t_6","mm_2","t_7","sum_2","view_1","t_8"],"inputs":[[],[],[],[],[],[],[],[0],[1,3,7],[8],[4],[5,9,10],[10],[6,12],[6],[14,9],[15],[6],[17],[16],[13,8],[20],[21,3],[22],[20],[24],[23]],"storages":[[0],[1],[],[2],[3],[4],[5],[0],[6],[7],[3],[8],[3],[9],[5],[10],[10],[11],[11],[10],[12],[12],[13],[13],[14],[14],[13]],"sizes":[0,1,2,1,3,4,5,5,4,5,1,3,5,0,1],"formulas":["4096","256","64*batch","4","4*batch","256*batch"],"forward_outputs":[11],"backward_outputs":[26,25,19,18],"last_forward":11,"primals":[0,1,2,3,4,5],"tangents":[6],"constants":[],"symbols":[2],"getitems":[],"random":[],"updates":[],"checkpoints":[],"layers":[{"cluster_id":"Linear+","num_nodes":2,"recompute":[7],"keep":[8]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[10],"keep":[11]}],"occurrences":[{"cluster_id":"addmm+","strategy":1,"nodes":[7,8]},{"cluster_id":"gelu+","strategy":1,"nodes":[9]}],"rng_state_bytes":5056,"always":[],"lowering":"","loops":[],"kinds":[],"copies":[],"loose":[],"fixing":[],"shapes":[],"limits":[50,12,4],"keeps_constants_open":true,"holds_tangents":false,"rng_state_elsewhere":false,"fixed":[],"elsewhere":[],"calls":1.0,"times_ns":[0,0,0,0,0,0,0,9134,20932,26800,2944,6781,8793,8692,2012,3334,1663,13160,7100,2233,36975,2783,8392,1883,10075,4697,2022],"batch_sizes":[2,4,8,16,32],"workspace":[],"boundary":{"loss":76,"loss_backward":68,"at_backward":4,"at_end":4,"after":0,"gradients":4612,"freed_gradients":4612,"batch_size":8}}],"calibration":{"torch":"2.13.0+cpu","device_name":"AMD EPYC","dtype":"float32","num_threads":1,"dimensions":{"batch":8},"error":0.0,"reason":"","engine":"aot"},"fork_refusal":""}','{"kind_of_answer":"winner","winner":{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]},"reason":"gelu+:1:-1 at batch 16 trains 1.36x as many samples per second as your baseline (21,248 vs 15,587 samples/s) within 21.6 GiB.","stop_reason":"2 trials were run, as many as this study may.","memory_limit_bytes":23218921472,"comparisons":[{"configuration":{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]},"samples_per_s":21247.53577862153,"baseline_samples_per_s":15586.854867161921,"speedup":1.3631701815217014,"speedup_low":1.2913674024267732,"speedup_high":1.4926177950079929,"p_value":0.05,"effect":1.0,"peak_bytes":388186112,"baseline_peak_bytes":325586944,"peak_ratio":1.1922220404876638,"peak_ratio_low":1.1917749625734377,"peak_ratio_high":1.192685720038761,"slowdown_p_value":null}],"proofs":[{"configuration":{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]},"answer":"exact","statement":"In the first 3 steps at batch 16, with the same seeds, losses, gradients and buffers have the same bits as in the unmodified script. The random generators are in the script''s state after each step.","steps":3,"equal_to_engine":null,"equal_to_script":true,"random_equal":true,"to_engine":[],"to_script":[{"group":"losses","compared":3,"differing":0,"name":"","step":0,"absolute":null,"relative":null},{"group":"gradients","compared":12,"differing":0,"name":"","step":0,"absolute":null,"relative":null},{"group":"buffers","compared":0,"differing":0,"name":"","step":0,"absolute":null,"relative":null},{"group":"counters","compared":0,"differing":0,"name":"","step":0,"absolute":null,"relative":null},{"group":"random","compared":9,"differing":0,"name":"","step":0,"absolute":null,"relative":null}],"engine_to_script":[],"sampled_one_in":1,"is_compiled":false}]}',1.79542730524574303623e+09,'0.1.0');
INSERT INTO "autotune_study" VALUES(2,2,'killed','{"script":"/home/user/project/own.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","engine":"aot","memory_limit_bytes":null,"objective":{"goal":"throughput","max_slowdown":0.03,"target_memory_bytes":null},"time_budget_s":120.0,"max_trials":60,"own_batch_size":null,"batch_sizes":null,"devices":[],"sampler":"gp","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":1,"plans_first":[],"choices":[],"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"rough_interval_ratio":0.03,"fine_steps":24,"min_measure_s":0.5,"max_measure_s":10.0,"rate_to_beat":null}}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":null,"choices":[]},"batch_size":8,"batch_control":{"how":"none","loaders":[],"sites":[],"reason":"no DataLoader feeds training; pass the script''s batch size option as {batch_size}, as in `-- --batch-size={batch_size}`, or let the script ask autotune.batch_size()"},"clusters":[{"cluster_id":"addmm+","strategy":1,"frequency":2,"saving_bytes":4096,"saving_formula":"512*batch","recompute_time_s":4.100001387996599e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":"runs costly operators again"},{"cluster_id":"gelu+","strategy":1,"frequency":2,"saving_bytes":4096,"saving_formula":"512*batch","recompute_time_s":3.7937003071419895e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":""}],"dimensions":{"batch":8},"split":{"parameters":21252,"gradients":21252,"optimizer_state":0,"buffers":0,"activations":8192},"roots":[{"name":"Sequential","num_parameters":5313,"num_trainable":5313,"num_graphs":1,"applied_by":"aot","wrapped_by":[]}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"dffe7fde1724ea814a75e4ad1b4ac45e3333f42fc15cf054663005315d4ee8b6","memory_matrix":[{"phase":"pre_forward","step":64,"allocated":325304320,"max_allocated":325308416,"peak":325308416,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":64,"allocated":325304320,"max_allocated":325308416,"peak":325308416,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":64,"allocated":325292032,"max_allocated":325308416,"peak":325308416,"parameters":21252,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":64,"allocated":325316608,"max_allocated":325328896,"peak":325328896,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":65,"allocated":325316608,"max_allocated":325328896,"peak":325316608,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":65,"allocated":325316608,"max_allocated":325328896,"peak":325324800,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":65,"allocated":325304320,"max_allocated":325328896,"peak":325316608,"parameters":21252,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":65,"allocated":325316608,"max_allocated":325328896,"peak":325328896,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[],"graphs":[{"names":["primals_1","primals_2","primals_3","primals_4","primals_5","primals_6","primals_7","primals_8","tangents_1","t","addmm","gelu","t_1","addmm_1","gelu_1","t_2","addmm_2","t_3","mm","t_4","mm_1","t_5","sum_1","view","t_6","gelu_backward","t_7","mm_2","t_8","mm_3","t_9","sum_2","view_1","t_10","gelu_backward_1","t_11","mm_4","t_12","sum_3","view_2","t_13"],"inputs":[[],[],[],[],[],[],[],[],[],[0],[1,3,9],[10],[4],[5,11,12],[13],[6],[7,14,15],[15],[8,17],[8],[19,14],[20],[8],[22],[21],[18,13],[12],[25,26],[25],[28,11],[29],[25],[31],[30],[27,10],[34],[35,3],[36],[34],[38],[37]],"storages":[[0],[1],[],[2],[3],[4],[5],[6],[7],[0],[8],[9],[3],[10],[11],[5],[12],[5],[13],[7],[14],[14],[15],[15],[14],[16],[3],[17],[16],[18],[18],[19],[19],[18],[20],[20],[21],[21],[22],[22],[21]],"sizes":[0,1,2,3,1,1,4,5,6,6,6,6,5,6,1,4,6,6,3,1,6,0,1],"formulas":["4096","256","64*batch","16384","4","4*batch","256*batch"],"forward_outputs":[16],"backward_outputs":[40,39,33,32,24,23],"last_forward":16,"primals":[0,1,2,3,4,5,6,7],"tangents":[8],"constants":[],"symbols":[2],"getitems":[],"random":[],"updates":[],"checkpoints":[],"layers":[{"cluster_id":"Linear+","num_nodes":2,"recompute":[9],"keep":[10]},{"cluster_id":"GELU+","num_nodes":1,"recompute":[],"keep":[11]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[12],"keep":[13]},{"cluster_id":"GELU+","num_nodes":1,"recompute":[],"keep":[14]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[15],"keep":[16]}],"occurrences":[{"cluster_id":"addmm+","strategy":1,"nodes":[9,10]},{"cluster_id":"gelu+","strategy":1,"nodes":[11]},{"cluster_id":"addmm+","strategy":1,"nodes":[12,13]},{"cluster_id":"gelu+","strategy":1,"nodes":[14]}],"rng_state_bytes":5056,"always":[],"lowering":"","loops":[],"kinds":[],"copies":[],"loose":[],"fixing":[],"shapes":[],"limits":[50,12,4],"keeps_constants_open":true,"holds_tangents":false,"rng_state_elsewhere":false,"fixed":[],"elsewhere":[],"calls":1.0,"times_ns":[0,0,0,0,0,0,0,0,0,9354,19779,25899,3034,8833,12038,2394,5168,8824,8262,2163,3335,1753,12769,7612,2384,36024,2594,9004,2173,4317,1753,10295,5108,2043,22183,2224,5729,1803,8002,4326,1994],"batch_sizes":[2,4,8,16,32],"workspace":[],"boundary":{"loss":76,"loss_backward":68,"at_backward":4,"at_end":4,"after":0,"gradients":21252,"freed_gradients":21252,"batch_size":8}}],"calibration":{"torch":"2.13.0+cpu","device_name":"AMD EPYC","dtype":"float32","num_threads":1,"dimensions":{"batch":8},"error":0.0,"reason":"","engine":"aot"},"fork_refusal":""}',NULL,1.79542734228660392763e+09,'0.1.0');
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
INSERT INTO "autotune_trial" VALUES(1,1,0,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[]}','finished',0,1,'/home/user/project/.autotune/runs/ended/discovery',1.79542731136941623691e+09,1.79542731136941623691e+09,'measured',1.29617207920672317415e+04,325332992,'{"kind":"measured","measurement":{"step_times_s":[0.0017502910050097853,0.0007986169948708266,0.0006955230055609718,0.0005831469970871694,0.0006098860030760989,0.0006145339939394034,0.0007669290062040091,0.0009655349931563251,0.0005780890060123056,0.0005327119943103753,0.0005522810024558567,0.0006013730017002672,0.0007570050001959316,0.0005400029986049049,0.0005161969966138713,0.0005215550045249984,0.0006842969960416667,0.0007838650053599849,0.000739798997528851,0.00067767700238619,0.0005444689959404059,0.0005345850004232489,0.0005557160038733855,0.0008853949984768406,0.0006438569980673492,0.0005396720007411204,0.0005202730026212521,0.0005129729979671538,0.0005141239962540567,0.0005209840019233525,0.0005292159985401668,0.0005152960002305917,0.0007675610031583346,0.0007401999973808415,0.000642324004729744,0.000535036000655964,0.0005368569982238114,0.0007875410010456108,0.0009585939988028258,0.0005638379952870309,0.0005235380012891255,0.0005578890049946494,0.0006583989961654879,0.0009456550033064559,0.0006620639978791587,0.0005930810002610087,0.000536027000634931,0.0006198510018293746,0.0006145529987406917,0.0011418569993111305,0.0005728109972551465,0.0005162680026842281,0.000792346996604465,0.0011689169987221248,0.0010553380052442662,0.0009806779999053106,0.0007931590007501654,0.0007507949994760565,0.0007890130000305362,0.0009408479963894933],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":325332992},"warmup_steps":3,"warmup_s":0.004673694995290134,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[{"phase":"pre_forward","step":63,"allocated":325951488,"max_allocated":325951488,"peak":325951488,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":63,"allocated":325951488,"max_allocated":325955584,"peak":325955584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":63,"allocated":325951488,"max_allocated":325955584,"peak":325951488,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":63,"allocated":325955584,"max_allocated":325963776,"peak":325963776,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":64,"allocated":325955584,"max_allocated":325963776,"peak":325955584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":64,"allocated":325955584,"max_allocated":325963776,"peak":325955584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":64,"allocated":325955584,"max_allocated":325963776,"peak":325955584,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":64,"allocated":325963776,"max_allocated":325967872,"peak":325967872,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[]}}',1);
INSERT INTO "autotune_trial" VALUES(2,1,1,2,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[]}','finished',0,1,'/home/user/project/.autotune/runs/ended/trial-0001',1.7954273115924432278e+09,1795427312.87279,'measured',1.53633062158266548062e+04,325586944,'{"kind":"measured","measurement":{"step_times_s":[0.002353536998271011,0.0016480099948239513,0.0010712319999583997,0.0013543620007112622,0.0017369710039929487,0.001153044002421666,0.001623912998184096,0.0013432659980026074,0.0009872079972410575,0.0009205780006595887,0.0008918250023270957,0.00131719699857058,0.0010686989990063012,0.0010567400022409856,0.0009968009981093928,0.0017516230000182986,0.0014762840000912547,0.001092193000658881,0.0013672720015165396,0.001016920999973081,0.0008508350001648068,0.0011931229964829981,0.0010100310028064996,0.0008695619981153868,0.0009163120048469864,0.001236627998878248,0.000836341998365242,0.0009603380021871999,0.0008862269969540648,0.001477105004596524,0.0017723229975672439,0.0009317849981016479,0.0015729279984952882,0.001029999999445863,0.0009318750016973354,0.0008727469976292923,0.001625666001928039,0.0011545259985723533,0.000912245006475132,0.0012372189958114177,0.0009233719974872656,0.0009563410058035515,0.0009143290008069016,0.0012466629996197298,0.0009285999985877424,0.0009544079948682338,0.000896693003596738,0.0022716050007147714,0.001052884996170178,0.0009202680012094788,0.0012222660006955266,0.0009364020006614737,0.0009142580020125024,0.0009044739999808371,0.0012948349976795726,0.000885795998328831,0.0008810990038909949,0.0009456760017201304,0.0015724469994893298,0.0016075079984148033],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":325586944},"warmup_steps":3,"warmup_s":0.009922304998326581,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":[]}}',1);
INSERT INTO "autotune_trial" VALUES(3,1,2,3,1,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[]}','finished',0,1,'/home/user/project/.autotune/runs/ended/trial-0002',1.79542731328612732884e+09,1.79542731534977602955e+09,'measured',1.69578200437894265634e+04,388292608,'{"kind":"measured","measurement":{"step_times_s":[0.001415113001712598,0.0011886459978995845,0.0009423310038982891,0.0008887099975254387,0.0010870260011870414,0.0011129039994557388,0.0015359219978563488,0.000919376005185768,0.0009088509978028014,0.000790044003224466,0.0017743969947332516,0.0009288200017181225,0.0007943509990582243,0.0007928080012788996,0.001191401002870407,0.0008007489959709346,0.0009959710005205125,0.0008118059995467775,0.001231139998708386,0.00096754699916346,0.0007793890035827644,0.0017250930031877942,0.0009447039992664941,0.0008131389986374415,0.0007883009966462851,0.0019328170019434765,0.0008467989973723888,0.0008525869998265989,0.0007713960003457032,0.0007652770000277087,0.0010172320035053417,0.0008946500020101666,0.000794439998571761,0.0010009979960159399,0.0008822110030450858,0.0008722759957890958,0.0012419660051818937,0.0007919769996078685,0.0008787659971858375,0.0010673860015231185,0.0008284409996122122,0.0010138669968000613,0.0009896100018522702,0.0018678560008993372,0.001293512003030628,0.0009487099960097112,0.0010982320018229075,0.0009565720029058866,0.0009402169962413609,0.0010871159975067712,0.0009096310022869147,0.0008258380039478652,0.0009075380003196187,0.0008726969972485676,0.0011560880011529662,0.0010173019982175902,0.0010209870015387423,0.001076519998605363,0.0009643430021242239,0.0007782269967719913],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":388292608},"warmup_steps":3,"warmup_s":0.7367284430001746,"batch_size":16,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"saved_bytes":4096,"memory_matrix":[],"notes":[]}}',1);
INSERT INTO "autotune_trial" VALUES(4,2,0,4,2,'{"engine":"eager","plans":[],"level":0,"batch_size":null,"choices":[]}','finished',0,1,'/home/user/project/.autotune/runs/killed/discovery',1.79542735015958523749e+09,1.79542735015958523749e+09,'measured',1.32512309778421640655e+04,324526080,'{"kind":"measured","measurement":{"step_times_s":[0.0010282380026183091,0.0006058009967091493,0.004731641005491838,0.0007223439970402978,0.0032628990011289716,0.0006185089951031841,0.0006921890017110854,0.0006223540040082298,0.002339537000807468,0.0006321399996522814,0.002783595999062527,0.001332489999185782,0.0006932609976502135,0.0005899259995203465,0.0005632270040223375,0.0005644789998768829,0.0026187119947280735,0.0005929710023337975,0.0005562170044868253,0.0020729299940285273,0.0027938620041823015,0.0006016339975758456,0.0005732420031563379,0.0007421129994327202,0.0005812640010844916,0.000561814995307941,0.00475551700219512,0.0006474120018538088,0.000574132995097898,0.0005550250061787665,0.0005548039989662357,0.0005456009967019781,0.0005405429983511567,0.0011456330030341633,0.0005778690028819256,0.003196238998498302,0.00057950199698098,0.0005511089984793216,0.0005443390036816709,0.0005416139974840917,0.0005495570003404282,0.0005414050028775819,0.00274103300034767,0.0005849189983564429,0.0005919100003666244,0.0031664760026615113,0.0005829659930896014,0.0006813220024923794,0.004156838003837038,0.0006301959947450086,0.0006105580032453872,0.0005785999965155497,0.0005509280017577112,0.0005495770019479096,0.0005495270015671849,0.0007506149995606393,0.000550058000953868,0.0031501909979851916,0.0006219540009624325,0.0005652199979522265],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":324526080},"warmup_steps":4,"warmup_s":0.01816758899803972,"batch_size":8,"calls_per_step":1.0,"num_processes":1,"samples_are_guessed":true,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"split":{"parameters":21252,"gradients":21252,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[{"phase":"pre_forward","step":64,"allocated":325304320,"max_allocated":325308416,"peak":325308416,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":64,"allocated":325304320,"max_allocated":325308416,"peak":325308416,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":64,"allocated":325292032,"max_allocated":325308416,"peak":325308416,"parameters":21252,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":64,"allocated":325316608,"max_allocated":325328896,"peak":325328896,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":65,"allocated":325316608,"max_allocated":325328896,"peak":325316608,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":65,"allocated":325316608,"max_allocated":325328896,"peak":325324800,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":65,"allocated":325304320,"max_allocated":325328896,"peak":325316608,"parameters":21252,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":65,"allocated":325316608,"max_allocated":325328896,"peak":325328896,"parameters":21252,"gradients":21252,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":["steps are uneven: the mean step takes 1.97x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(5,2,3,7,2,'{"engine":"aot","plans":[{"cluster_id":"addmm+","strategy":1,"count":-1},{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":null,"choices":[]}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0003',1.79542735054433083528e+09,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "autotune_trial" VALUES(6,2,2,6,2,'{"engine":"aot","plans":[{"cluster_id":"addmm+","strategy":1,"count":-1}],"level":0,"batch_size":null,"choices":[]}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0003',1.79542735055525922772e+09,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "autotune_trial" VALUES(7,2,1,5,2,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":null,"choices":[]}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0003',1.79542735055910634999e+09,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "trial_params" VALUES(2,1,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(3,1,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(4,2,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(5,2,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(6,2,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(7,3,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(8,3,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(9,3,'gelu+',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(10,4,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(11,4,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(12,5,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(13,5,'gelu+',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(14,6,'addmm+',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(15,6,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(16,7,'addmm+',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(17,7,'gelu+',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'constraints:memory','-0.9859884537534475');
INSERT INTO "trial_system_attributes" VALUES(2,2,'constraints:memory','-0.9859775164667907');
INSERT INTO "trial_system_attributes" VALUES(3,3,'constraints:memory','-0.9832768887018182');
INSERT INTO "trial_system_attributes" VALUES(4,4,'constraints:memory','-0.9856632912762132');
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
INSERT INTO "trial_user_attributes" VALUES(4,2,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(5,2,'configuration','"batch 16, no plans"');
INSERT INTO "trial_user_attributes" VALUES(6,2,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(7,2,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(8,3,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(9,3,'configuration','"batch 16, gelu+:1:-1"');
INSERT INTO "trial_user_attributes" VALUES(10,3,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(11,3,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(12,4,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(13,4,'configuration','"no plans"');
INSERT INTO "trial_user_attributes" VALUES(14,4,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(15,5,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(16,5,'configuration','"gelu+:1:-1"');
INSERT INTO "trial_user_attributes" VALUES(17,6,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(18,6,'configuration','"addmm+:1:-1"');
INSERT INTO "trial_user_attributes" VALUES(19,7,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(20,7,'configuration','"addmm+:1:-1 gelu+:1:-1"');
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
INSERT INTO "trial_values" VALUES(1,1,0,1.29617207920672317415e+04,'FINITE');
INSERT INTO "trial_values" VALUES(2,1,1,325332992.0,'FINITE');
INSERT INTO "trial_values" VALUES(3,2,0,1.53633062158266548062e+04,'FINITE');
INSERT INTO "trial_values" VALUES(4,2,1,325586944.0,'FINITE');
INSERT INTO "trial_values" VALUES(5,3,0,1.69578200437894265634e+04,'FINITE');
INSERT INTO "trial_values" VALUES(6,3,1,388292608.0,'FINITE');
INSERT INTO "trial_values" VALUES(7,4,0,1.32512309778421640655e+04,'FINITE');
INSERT INTO "trial_values" VALUES(8,4,1,324526080.0,'FINITE');
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
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-23 09:48:31.345859','2026-11-23 09:48:31.345859');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-23 09:48:31.575025','2026-11-23 09:48:32.962311');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-23 09:48:33.271254','2026-11-23 09:48:35.433970');
INSERT INTO "trials" VALUES(4,0,2,'COMPLETE','2026-11-23 09:49:10.105149','2026-11-23 09:49:10.105149');
INSERT INTO "trials" VALUES(5,1,2,'RUNNING','2026-11-23 09:49:10.450283',NULL);
INSERT INTO "trials" VALUES(6,2,2,'RUNNING','2026-11-23 09:49:10.476709',NULL);
INSERT INTO "trials" VALUES(7,3,2,'RUNNING','2026-11-23 09:49:10.510024',NULL);
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